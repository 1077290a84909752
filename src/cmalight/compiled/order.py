"""The batches of one epoch as indices, in the order an eager epoch would take them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cmalight.evaluation.batches import TensorBatches


@dataclass(frozen=True)
class Order:
    """Full batches, then a short last one; one of the two may be missing.

    rows: of each part, the samples of each batch
    """

    rows: tuple[Tensor, ...]

    @property
    def batches(self) -> int:
        return sum(len(part) for part in self.rows)

    @property
    def sizes(self) -> list[int]:
        """Of the batches of each part."""
        return [part.shape[1] for part in self.rows]

    @property
    def nominal(self) -> int:
        """n̄."""
        return self.rows[0].shape[1]

    @property
    def shares(self) -> list[float]:
        """n_p/n̄ of each part."""
        return [part.shape[1] / self.nominal for part in self.rows]

    def samples_after(self, batches: int) -> int:
        short = len(self.rows) > 1 and batches == self.batches
        return batches * self.nominal - (self.nominal - self.rows[1].shape[1] if short else 0)


def order_of_epoch(feed: TensorBatches, epoch: int) -> Order:
    order = feed.permutation(epoch)
    full = len(order) // feed.batch_size
    end = full * feed.batch_size
    parts = [order[:end].view(full, feed.batch_size)] if full else []
    if end < len(order):
        parts.append(order[end:].view(1, -1))
    return Order(tuple(parts))
