"""How the `with` block of an epoch is left, and how to know that it was."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol


class Left(Protocol):
    """An epoch, as far as it is left.

    Attributes:
        block: Gives None once its `with` block was left.
    """

    block: Callable[[], object] | None

    def close(self, *, failed: bool) -> None:
        """What leaving the block does."""


class _Exit:
    """What `with` holds until its block is left: while it lives, the block is under way."""

    def __init__(self, epoch: Left) -> None:
        self._epoch = epoch

    def __call__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._epoch.close(failed=kind is not None)


class Leaving:
    """`__exit__` as an object of its own: a block that Ctrl-C left before its exit ran is not taken for open."""

    def __get__(self, epoch: Left | None, owner: type) -> Any:
        if epoch is None:
            return self
        leaving = _Exit(epoch)
        epoch.block = weakref.ref(leaving)  # `with` takes it when its block begins, and holds it to the block's end
        return leaving

    def __call__(
        self, epoch: Left, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """As ExitStack calls it."""
        epoch.close(failed=kind is not None)
