"""Run something on a model and its loader, and leave no trace of it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

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


def private_iteration(loader: Iterable[Any]) -> Iterable[Any]:
    """An iteration of our own, so that a pass in mid-epoch does not disturb the one that is under way."""
    if hasattr(loader, "for_evaluation"):  # TensorBatches would count the pass as an epoch
        return loader.for_evaluation()  # type: ignore[no-any-return]
    if hasattr(loader, "base_dataloader") and hasattr(loader, "gradient_state"):
        return _behind_accelerate(loader)
    # A DataLoader with persistent workers has but one iterator, and iterating it again resets that.
    if isinstance(loader, DataLoader) and loader.persistent_workers:
        private = copy.copy(loader)
        private._iterator = None
        return private
    return loader


def _behind_accelerate(loader: Any) -> Iterable[Any]:
    """The loader inside: the outer one counts its passes and tells gradient accumulation where an epoch ends.

    The shards of several processes are disjoint if all draw the same order; Accelerate sees to that in passes of
    its own, the first of which is still to come when f(w⁰) is evaluated.
    """
    generator = getattr(loader, "synchronized_generator", None)
    if generator is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        states = [generator.get_state()]
        torch.distributed.broadcast_object_list(states)
        generator.set_state(states[0])
    return loader.base_dataloader  # type: ignore[no-any-return]
