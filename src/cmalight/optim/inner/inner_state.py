"""What an inner optimizer remembers from step to step: copied, put back, or forgotten."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from cmalight.evaluation.norms import all_finite


class HasGroups(Protocol):
    """An optimizer, as far as its parameters go.

    Attributes:
        param_groups: As torch has them.
    """

    param_groups: list[dict[str, Any]]


class InnerState:
    """A copy of an optimizer's state and of what it keeps in its groups; `apart` names entries that are not its own."""

    def __init__(self, optimizer: Optimizer, apart: Collection[str]) -> None:
        self.optimizer = optimizer
        self._apart = {"params", *apart}
        self._state = {p: {name: _copied(value) for name, value in own.items()} for p, own in optimizer.state.items()}
        self._groups = self._left = self._own_entries()

    @torch.no_grad()
    def restore(self) -> None:
        """As it was, bit for bit; tensors that are still in use are written to, not replaced."""
        state = self.optimizer.state
        for p in [p for p in state if p not in self._state]:
            del state[p]
        for p, saved in self._state.items():
            own = state[p]
            for name in [name for name in own if name not in saved]:
                del own[name]
            for name, value in saved.items():
                current = own.get(name)
                if isinstance(value, Tensor) and isinstance(current, Tensor) and current.shape == value.shape:
                    current.copy_(value)
                else:
                    own[name] = _copied(value)
        for group, saved in zip(self.optimizer.param_groups, self._groups, strict=True):
            for name in self._own_names(group) - saved.keys():  # as Prodigy adds some with its first step
                del group[name]
            group.update(copy.deepcopy(saved))

    def plain(self) -> dict[str, Any]:
        """Tensors and numbers, for a state_dict; parameters by their number, as there."""
        numbers = {p: at for at, p in enumerate(parameters_of(self.optimizer))}
        return {"state": {numbers.get(p, p): own for p, own in self._state.items()}, "groups": self._groups}

    def put(self, plain: dict[str, Any]) -> None:
        """Remember what `plain` gave."""
        parameters = parameters_of(self.optimizer)
        self._state = {parameters[at] if isinstance(at, int) else at: own for at, own in plain["state"].items()}
        if len(plain["groups"]) != len(self._groups):
            raise ValueError(f"it has {len(plain['groups'])} groups, not {len(self._groups)}")
        self._groups = plain["groups"]

    def leave(self) -> None:
        """Its steps pause, so that somebody else may change what is in the groups."""
        self._left = self._own_entries()

    def go_on(self) -> None:
        """What somebody else has changed in the groups meanwhile is theirs, and stays when the rest is put back."""
        for saved, left, now in zip(self._groups, self._left, self._own_entries(), strict=True):
            saved |= {name: value for name, value in now.items() if name not in left or not _same(left[name], value)}

    def _own_entries(self) -> list[dict[str, Any]]:
        return [
            {name: _copied(group[name]) for name in self._own_names(group)} for group in self.optimizer.param_groups
        ]

    def _own_names(self, group: dict[str, Any]) -> set[str]:
        return group.keys() - self._apart


def parameters_of(optimizer: HasGroups) -> list[Tensor]:
    """All of its groups, trained or frozen, in the order in which torch numbers them."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return bool(one == other)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value if isinstance(value, bool | int | float | str | None) else copy.deepcopy(value)


def is_finite(optimizer: Optimizer) -> bool:
    """Whether what the optimizer remembers of its parameters is: what is not would spoil every step to come."""
    held = [value for own in optimizer.state.values() for value in own.values()]
    tensors = [t for value in held for t in (value if isinstance(value, list | tuple) else (value,))]
    return all_finite([t for t in tensors if isinstance(t, Tensor)])
