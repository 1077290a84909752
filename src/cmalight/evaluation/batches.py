"""Batches of tensors that are in memory already: no worker, no collating, almost no cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from cmalight.errors import check_choice, check_whole

Order = Literal["fixed", "reshuffle"]

# A permuted epoch is gathered in blocks of about this many numbers, so that it never needs a second copy of the data.
_BLOCK = 1 << 17


class TensorBatches:
    """Batches of tensors in memory. Each iteration gives the batches of one epoch.

    Args:
        *tensors: of equal length, usually inputs and targets; batches are copies of their rows.
        batch_size: the last batch may be shorter.
        order: "fixed" (Incremental Gradient), or "reshuffle" for a new permutation each epoch (Random Reshuffling).
        seed: with the number of the epoch it determines the permutation, and nothing else does.

    Raises:
        ValueError: if the tensors are empty or of unequal length, or an argument is not one of those above.

    Example:
        >>> import torch
        >>> from cmalight import TensorBatches
        >>> batches = TensorBatches(torch.arange(5), torch.arange(5) ** 2, batch_size=2, order="fixed")
        >>> [(x.tolist(), y.tolist()) for x, y in batches]
        [([0, 1], [0, 1]), ([2, 3], [4, 9]), ([4], [16])]
    """

    def __init__(self, *tensors: Tensor, batch_size: int = 128, order: Order = "reshuffle", seed: int = 0) -> None:
        if not tensors or any(len(t) != len(tensors[0]) for t in tensors):
            raise ValueError(
                f"TensorBatches needs tensors of equal length, but got lengths {[len(t) for t in tensors]}"
            )
        if len(tensors[0]) == 0:
            raise ValueError("TensorBatches needs at least one sample, but the tensors are empty")
        check_whole("batch_size", batch_size, least=1)
        check_choice("order", order, get_args(Order))
        self.tensors = tensors
        self.batch_size = int(batch_size)
        self.order = order
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return -(-self.samples // self.batch_size)

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self.tensors[0])

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration that of this epoch.

        Args:
            epoch: Its number, from 0 on.
        """
        self.epoch = epoch

    def permutation(self, epoch: int) -> Tensor:
        """The order of the samples in that epoch, from (seed, epoch) alone; the same for every device.

        Args:
            epoch: Its number, from 0 on.

        Returns:
            The numbers of the samples.
        """
        if self.order == "fixed":
            return torch.arange(self.samples)
        generator = torch.Generator().manual_seed(_mixed(self.seed, epoch))
        return torch.randperm(self.samples, generator=generator)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        epoch = self.epoch
        self.epoch += 1
        if self.order == "fixed":
            return self._slices()
        return self._gathered(self.permutation(epoch))

    def _slices(self) -> Iterator[tuple[Tensor, ...]]:
        # Copies: a first layer that works in place would otherwise write into the caller's tensors.
        for batch in zip(*(torch.split(t, self.batch_size) for t in self.tensors), strict=True):
            yield tuple(part.clone() for part in batch)

    def _gathered(self, permutation: Tensor) -> Iterator[tuple[Tensor, ...]]:
        numbers_in_a_batch = self.batch_size * sum(t[0].numel() for t in self.tensors)
        batches_in_a_block = max(1, _BLOCK // max(1, numbers_in_a_batch))
        permutation = permutation.to(self.tensors[0].device)
        for rows in torch.split(permutation, self.batch_size * batches_in_a_block):
            blocks = (torch.split(t.index_select(0, rows), self.batch_size) for t in self.tensors)
            yield from zip(*blocks, strict=True)


def _mixed(seed: int, epoch: int) -> int:
    """A seed for torch from the two: neighbouring epochs and neighbouring seeds never share one."""
    return (seed * 0x9E3779B97F4A7C15 + epoch * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D) % (1 << 63)
