"""A whole training in one call: validation, early stopping, the best weights, a checkpoint to go on from."""

from __future__ import annotations

import torch
from torch import nn

from cmalight import fit
from cmalight.datasets.generated import teacher_network


def mae(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().mean()


def main() -> None:
    torch.manual_seed(0)
    x, y = teacher_network(3000, 8, noise=0.05)
    model = nn.Sequential(nn.Linear(8, 20), nn.Sigmoid(), nn.Linear(20, 1))
    result = fit(
        model,
        nn.MSELoss(),
        (x[600:], y[600:]),
        validation=(x[:600], y[:600]),
        metrics=(mae,),
        batch_size=64,
        max_epochs=40,
        patience=10,
        restore_best=True,
        checkpoint="fit_table.pt",
    )
    best = result.history[result.best_epoch]
    print(result)
    print(
        f"best validation in epoch {best.epoch}: loss {best.validation_loss:.4f}, mean error {best.metrics['mae']:.3f}"
    )


if __name__ == "__main__":
    main()
