"""The batches of one epoch as indices, full ones and a short last one, in the order an eager epoch would take them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cmalight.data.batches import TensorBatches


@dataclass(frozen=True)
class Part:
    """Batches of one size.

    rows: the samples of each batch
    first: how many batches came before
    share: n_p/n̄, of the size of the epoch's first batch
    """

    rows: Tensor
    first: int
    share: float

    def samples_after(self, batches: int, size: int) -> float:
        """Seen in the epoch when so many batches of this part are done."""
        return float(self.first * size + batches * self.rows.shape[1])


def parts_of_epoch(feed: TensorBatches, epoch: int) -> list[Part]:
    order = feed.permutation(epoch)
    full = len(order) // feed.batch_size
    end = full * feed.batch_size
    parts = [Part(order[:end].view(full, feed.batch_size), 0, 1.0)] if full else []
    if end < len(order):
        rest = order[end:].view(1, -1)
        parts.append(Part(rest, full, rest.shape[1] / feed.batch_size if full else 1.0))
    return parts
