"""How often the anti-gradient of a batch is a descent direction of f: `python docs/results/paper/descent.py`.

Writes descent.json: for the paper's small data sets and two networks the share of the batches with a positive product
of their gradient and that of f, at the start and after five and twenty epochs of CMALight.
"""

import json
from pathlib import Path

import torch
from torch import nn

from cmalight import fit
from cmalight.datasets import load_dataset
from cmalight.models import paper_network

DATASETS = ("ailerons", "beijing-pm25", "bikes", "california", "mv")
NETWORKS = ("1x50", "5x50")
EPOCHS = (0, 5, 20)
BATCH = 128


def share(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Of the batches whose anti-gradient leads f down."""
    parameters = list(model.parameters())

    def gradient(rows: slice) -> torch.Tensor:
        found = torch.autograd.grad(nn.functional.mse_loss(model(x[rows]), y[rows]), parameters)
        return torch.cat([one.flatten() for one in found])

    whole = gradient(slice(None))
    batches = [gradient(slice(at, at + BATCH)) for at in range(0, len(x), BATCH)]
    return sum(bool(one @ whole > 0) for one in batches) / len(batches)


def main() -> None:
    torch.set_num_threads(1)
    shares: dict[str, list[float]] = {str(epochs): [] for epochs in EPOCHS}
    for dataset in DATASETS:
        data = load_dataset(dataset)
        for network in NETWORKS:
            for epochs in EPOCHS:
                torch.manual_seed(0)
                model = paper_network(network, data.features)
                pair = (data.x_train, data.y_train)
                fit(
                    model,
                    nn.MSELoss(),
                    pair,
                    optimizer="cmalight",
                    max_epochs=epochs,
                    progress=False,
                    engine="eager",
                )
                shares[str(epochs)].append(round(share(model, *pair), 4))
    Path(__file__).with_suffix(".json").write_text(
        json.dumps(shares, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
