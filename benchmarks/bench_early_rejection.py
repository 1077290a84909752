"""Thirty epochs that begin with a far too large lr: early rejection on against off."""

from __future__ import annotations

import torch
from common import BATCH, SMALL, Batches, interleaved, quick_option, ratio, seconds, table
from torch import Tensor, nn

from cmalight import CMALight, Objective, Outcome

EPOCHS = 30
SAMPLES = 15_000


def shuffled(data: tuple[Tensor, Tensor], seed: int) -> Batches:
    """The batches of one epoch. A shuffling DataLoader draws from its generator once more when it is exhausted,
    so that after an epoch that ended early it would go on in another order, and the two runs would part."""
    order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(seed)).split(BATCH)
    return [(data[0][index], data[1][index]) for index in order]


class Run:
    """One training from scratch; what it ends with is compared."""

    def __init__(self, lr: float, *, early_rejection: bool) -> None:
        self.lr = lr
        self.early_rejection = early_rejection
        self.data = SMALL.table(SAMPLES)
        self.weights: Tensor = torch.empty(0)
        self.control: tuple[float, ...] = ()
        self.rejected_early = 0

    def __call__(self) -> None:
        model, loss_fn = SMALL.model(), nn.MSELoss()
        optimizer = CMALight(model.parameters(), lr=self.lr, early_rejection=self.early_rejection)
        objective = Objective(model, loss_fn, shuffled(self.data, 0))
        outcomes = []
        for seed in range(EPOCHS):
            with optimizer.epoch(objective) as epoch:
                for x, y in epoch.batches(shuffled(self.data, seed)):
                    optimizer.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    epoch.observe(loss, len(y))
                    optimizer.step()
            outcomes.append(epoch.report.outcome)
        self.weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        self.control = (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["phi"])
        self.rejected_early = outcomes.count(Outcome.REJECTED_EARLY)


def main() -> None:
    quick = quick_option(__doc__)
    torch.set_num_threads(1)
    rows = []
    for lr in (100.0, 10.0, 0.1):
        on, off = Run(lr, early_rejection=True), Run(lr, early_rejection=False)
        times = interleaved({"on": seconds(on), "off": seconds(off)}, 1 if quick else 5)
        same = (torch.equal(on.weights, off.weights), on.control[0] == off.control[0], on.control[1] == off.control[1])
        cells = (f"{on.rejected_early} of {EPOCHS}", f"**{ratio(times['on'], times['off']):.2f}**")
        rows.append([f"{lr:g}", *cells, *("yes" if equal else "NO" for equal in same)])
    print(table(["lr", "rejected early", "time on / off", "same weights", "same zeta", "same phi"], rows))


if __name__ == "__main__":
    main()
