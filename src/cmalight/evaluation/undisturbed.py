"""Run something on a model and its loader, and leave no trace of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from cmalight.evaluation.randomness import sources
from cmalight.evaluation.snapshot import ModuleState


@contextmanager
def undisturbed(model: nn.Module, loader: object) -> Iterator[None]:
    """Restores buffers, train/eval modes and random states, the loader's own generators included, at the end."""
    with ExitStack() as undo:
        undo.callback(_restore_modes, [(m, m.training) for m in model.modules()])
        undo.callback(ModuleState(model).restore)
        for source in sources(model, loader):
            undo.callback(source.put, source.get())
        yield


def _restore_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, training in modes:
        module.training = training
