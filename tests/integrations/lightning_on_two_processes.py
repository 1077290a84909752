"""A script that Lightning starts once more for the second process: `python THIS FOLDER early|late|limited`."""

import sys
from pathlib import Path

import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, DistributedSampler

from tests.integrations.lightning_modules import BOLD, Regression, Reports, SteadyRegression, batches, flat, trainer


class _InOrder:
    """Lightning's own sampler would reshuffle."""

    def train_dataloader(self):
        data = batches(samples=96).dataset
        return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))


class InOrder(_InOrder, Regression):
    pass


class SteadyInOrder(_InOrder, SteadyRegression):
    pass


def main(folder, mode):
    torch.set_num_threads(1)
    limits = {"max_epochs": 3, "limit_train_batches": 4} if mode == "limited" else {"max_epochs": 20}
    module = SteadyInOrder() if mode == "limited" else InOrder(BOLD, early_rejection=mode == "early")
    callback = Reports()
    strategy = DDPStrategy(process_group_backend="gloo")
    run = trainer(callback, devices=2, strategy=strategy, **limits)
    run.fit(module)
    result = {
        "weights": flat(module),
        "reports": [str(r) for r in callback.reports],
        "lr": run.optimizers[0].param_groups[0]["lr"],
        "rates": getattr(module, "rates", []),
    }
    torch.save(result, Path(folder) / f"rank{run.global_rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
