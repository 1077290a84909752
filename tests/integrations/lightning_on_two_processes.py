"""A script that Lightning starts once more for the second process: `python THIS FOLDER EARLY_REJECTION`."""

import sys
from pathlib import Path

import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, DistributedSampler

from tests.integrations.lightning_modules import BOLD, Regression, Reports, batches, flat, trainer


class InOrder(Regression):
    """Lightning's own sampler would reshuffle."""

    def train_dataloader(self):
        data = batches(samples=96).dataset
        return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))


def main(folder, early):
    torch.set_num_threads(1)
    module, callback = InOrder(BOLD, early_rejection=early == "early"), Reports()
    strategy = DDPStrategy(process_group_backend="gloo")
    run = trainer(callback, devices=2, strategy=strategy, max_epochs=20)
    run.fit(module)
    result = {
        "weights": flat(module),
        "reports": [str(r) for r in callback.reports],
        "lr": run.optimizers[0].param_groups[0]["lr"],
    }
    torch.save(result, Path(folder) / f"rank{run.global_rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
