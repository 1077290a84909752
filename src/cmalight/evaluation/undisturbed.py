"""Run something on a model and its loader, and leave no trace of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from cmalight.evaluation.randomness import RandomSource, sources
from cmalight.evaluation.snapshot import ModuleState


@contextmanager
def undisturbed(
    model: nn.Module, loader: object, loss_fn: object = None, *, may_draw: bool = True
) -> Iterator[tuple[RandomSource, ...]]:
    """Restores buffers, extra state, train/eval modes and random states at the end.

    Args:
        model: that is run.
        loader: that is iterated; generators that it, its data set and its functions use are put back.
        loss_fn: so are those that this uses.
        may_draw: False where it is known that the block draws no random numbers: then there is nothing to put back.

    Yields:
        All these generators, which the block may seed.
    """
    with ExitStack() as undo:
        undo.callback(_restore_modes, [(m, m.training) for m in model.modules()])
        undo.callback(ModuleState(model).restore)
        found = sources(model, loader, loss_fn) if may_draw else ()
        for source in found:
            undo.callback(source.put, source.get())
        yield found


def _restore_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, training in modes:
        module.training = training
