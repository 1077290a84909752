"""Runs of a model that are no part of its training, and leave no trace of it in the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from cmalight.compiled.layout import CannotCompile
from cmalight.evaluation.undisturbed import undisturbed


@contextmanager
def trial(model: nn.Module, loss_fn: object, loader: object = None) -> Iterator[None]:
    """`undisturbed`, and parameters that the block has changed are put back.

    Raises:
        CannotCompile: it has changed some, as a norm that is kept in bounds by the forward pass does.
    """
    before = [(name, p, p.data, p.detach().clone()) for name, p in model.named_parameters()]
    changed = []
    try:
        with undisturbed(model, loader, loss_fn):
            yield
    finally:
        for name, p, place, values in before:
            if p.data_ptr() != place.data_ptr() or not _same(p.detach(), values):
                changed.append(name)
                p.data = place
                place.copy_(values)
    if changed:
        raise CannotCompile(f"the forward pass changes the parameter {changed[0]}")


def _same(left: Tensor, right: Tensor) -> bool:
    return bool(((left == right) | ((left != left) & (right != right))).all())  # NaN is NaN
