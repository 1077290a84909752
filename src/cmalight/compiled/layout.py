"""The parameters that are trained as one flat vector, and the way back into the model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._C._nn import flatten_dense_tensors, unflatten_dense_tensors
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer


class CannotCompile(Exception):  # noqa: N818 - it is a reason, which may lead to eager epochs
    """Why epochs of this model, optimizer or data are not compiled."""


@dataclass(frozen=True)
class Layout:
    """Where each trained parameter lies in the flat vector; those of a group are side by side.

    The vector exists inside an epoch alone. A model whose parameters were views of it would show: in what it saves,
    and to whoever holds an alias of them.
    """

    names: tuple[str, ...]
    params: tuple[Tensor, ...]
    groups: tuple[tuple[int, int], ...]  # from, to

    @classmethod
    def of(cls, model: nn.Module, optimizer: Optimizer) -> Layout:
        names = {id(p): name for name, p in model.named_parameters()}
        trained: list[list[Tensor]] = [
            [p for p in group["params"] if p.requires_grad] for group in optimizer.param_groups
        ]
        params = [p for group in trained for p in group]
        if not params:
            raise CannotCompile("no parameter of the optimizer requires a gradient")
        for p in params:
            if id(p) not in names:
                raise CannotCompile("the optimizer trains a parameter that is not the model's")
            _check_kind(names[id(p)], p, like=params[0])
        ends = list(itertools.accumulate(sum(p.numel() for p in group) for group in trained))
        return cls(
            names=tuple(names[id(p)] for p in params),
            params=tuple(params),
            groups=tuple(zip([0, *ends[:-1]], ends, strict=True)),
        )

    @property
    def dtype(self) -> torch.dtype:
        return self.params[0].dtype

    def is_that_of(self, model: nn.Module, optimizer: Optimizer) -> bool:
        """Whether they still have these parameters and train no other, each in its group's place.

        Asked before every epoch, so it makes no new layout.
        """
        trained = [[p for p in group["params"] if p.requires_grad] for group in optimizer.param_groups]
        ends = itertools.accumulate(sum(p.numel() for p in group) for group in trained)
        params = [p for group in trained for p in group]
        owned = {id(p) for module in model.modules() for p in module._parameters.values()}
        return (
            len(params) == len(self.params)
            and all(a is b and id(a) in owned for a, b in zip(params, self.params, strict=True))
            and list(ends) == [end for _, end in self.groups]
        )

    @torch.no_grad()
    def flat(self, tensors: Sequence[Tensor] | None = None) -> Tensor:
        """A copy of the parameters, or of other tensors of their shapes, one after the other."""
        tensors = list(self.params if tensors is None else tensors)
        return flatten_dense_tensors(tensors) if len(tensors) > 1 else tensors[0].reshape(-1).clone()

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Views of the vector in the shapes of the parameters."""
        pieces = torch.split(flat, [p.numel() for p in self.params])
        return [piece.view(p.shape) for piece, p in zip(pieces, self.params, strict=True)]

    @torch.no_grad()
    def put(self, flat: Tensor, tensors: Sequence[Tensor] | None = None) -> None:
        """Into the parameters, or into other tensors of their shapes."""
        into = list(self.params if tensors is None else tensors)
        torch._foreach_copy_(into, unflatten_dense_tensors(flat, into))


def _check_kind(name: str, p: Tensor, *, like: Tensor) -> None:
    if is_lazy(p):
        raise CannotCompile(f"the parameter {name} has no shape yet")
    if p.device.type != "cpu":
        raise CannotCompile(f"the parameter {name} is on {p.device}, and epochs are compiled for the CPU")
    if p.dtype not in (torch.float32, torch.float64) or p.dtype != like.dtype:
        raise CannotCompile(f"the parameter {name} is {p.dtype}: expected all of them float32, or all float64")
    if p.layout != torch.strided or type(p) not in (nn.Parameter, Tensor):
        raise CannotCompile(f"the parameter {name} is a {type(p).__name__} of layout {p.layout}")
