"""w^k and the way to w^k + alpha d: parameters, buffers and module state, saved, restored, moved."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.evaluation.norms import distance
from cmalight.parallel.shards import local, reshard


class ModuleState:
    """A copy of what a forward pass may change: buffers (also replaced ones) and extra state."""

    def __init__(self, model: nn.Module | None) -> None:
        self._buffers: list[tuple[nn.Module, dict[str, tuple[Tensor | None, Tensor | None]]]] = []
        self._extra: list[tuple[nn.Module, Any]] = []
        for module in model.modules() if model is not None else ():  # in an order that a model of the same build has
            self._buffers.append((module, {n: (b, _clone(b)) for n, b in module._buffers.items()}))
            if type(module).get_extra_state is not nn.Module.get_extra_state:
                self._extra.append((module, copy.deepcopy(module.get_extra_state())))

    @torch.no_grad()
    def restore(self) -> None:
        for module, buffers in self._buffers:
            for name in module._buffers.keys() - buffers.keys():
                del module._buffers[name]
                module._non_persistent_buffers_set.discard(name)
            for name, (buffer, value) in buffers.items():
                if buffer is not None and value is not None and not _is_expanded(buffer):
                    buffer.copy_(value)
                module._buffers[name] = buffer
        for module, state in self._extra:
            module.set_extra_state(copy.deepcopy(state))

    def plain(self) -> dict[str, list[Any]]:
        return {
            "buffers": [{name: value for name, (_, value) in buffers.items()} for _, buffers in self._buffers],
            "extra": [state for _, state in self._extra],
        }

    def put(self, plain: dict[str, list[Any]]) -> None:
        """What `plain` gave, of a model of the same build."""
        pairs = zip(self._buffers, plain["buffers"], strict=True)
        self._buffers = [
            (module, {name: (None if value is None else module._buffers[name], _clone(value)) for name, value in own})
            for (module, _), own in ((one, saved.items()) for one, saved in pairs)
        ]
        self._extra = [(module, state) for (module, _), state in zip(self._extra, plain["extra"], strict=True)]


class Snapshot:
    """Remembers w^k; later sets the weights to any point of the line through w^k and w̃.

    It holds one copy of the parameters, and a second one from `set_aside` to `release_tentative`; of parameters
    that are sharded over ranks it holds what this rank holds.
    """

    def __init__(self, params: Sequence[Tensor], model: nn.Module | None) -> None:
        self._params = list(params)
        self._covered = set(map(id, self._params))
        self._frozen: list[Tensor] | None = None  # in the groups, and not covered
        self._groups = 0
        self._model = model
        self._start = self._copy()
        self._tentative: _Point | None = None

    def cover(self, groups: Sequence[dict[str, Any]]) -> None:
        """Before a step: parameters that are trained only since now are remembered, too."""
        if self._frozen is None or len(groups) != self._groups:
            self._frozen = [p for group in groups for p in group["params"] if id(p) not in self._covered]
            self._groups = len(groups)
        if self._frozen and (thawed := [p for p in self._frozen if p.requires_grad]):
            self._frozen = [p for p in self._frozen if not p.requires_grad]
            self._covered.update(map(id, thawed))
            self._params += thawed
            for point in (self._start, self._tentative):
                if point is not None:
                    point.weights.extend(local(p).detach().clone() for p in thawed)

    def displacement_norm(self) -> float:
        """‖w − w^k‖ of the weights as they are now."""
        return distance(self._params, self._start.weights)

    def set_aside(self) -> None:
        """Keep the weights as they are now, w̃, so that `move` can come back to them bit for bit."""
        if self._tentative is None:
            self._tentative = self._copy()

    def release_tentative(self) -> None:
        self._tentative = None

    def move(self, fraction: float) -> None:
        """To w^k + fraction (w̃ − w^k): 0 is w^k, 1 is w̃, anything else takes the buffers of w̃."""
        if fraction == 0.0:
            self._go_to(self._start)
        elif self._tentative is not None:
            self._go_to(self._tentative)
            if fraction != 1.0:
                self._stretch(fraction)
        elif fraction != 1.0:
            raise RuntimeError("Snapshot.move needs set_aside() first for a point other than w^k")
        # else: nothing was set aside, so the weights never left w̃

    @torch.no_grad()
    def _stretch(self, fraction: float) -> None:
        # In place, so that no third copy of the parameters is ever held.
        weights = self._local()
        torch._foreach_sub_(weights, self._start.weights)
        torch._foreach_mul_(weights, fraction)
        torch._foreach_add_(weights, self._start.weights)

    def plain(self, params: Sequence[Tensor]) -> dict[str, Any]:
        """w^k of these parameters, None of one that was frozen: tensors and numbers, for a state_dict."""
        covered = dict(zip(map(id, self._params), self._start.weights, strict=True))
        return {"weights": [covered.get(id(p)) for p in params], **self._start.state.plain()}

    def put(self, plain: dict[str, Any], params: Sequence[Tensor]) -> None:
        """Remember as w^k what `plain` gave of these parameters."""
        pairs = [(p, w) for p, w in zip(params, plain["weights"], strict=True) if w is not None]
        self._params = [p for p, _ in pairs]
        self._covered = set(map(id, self._params))
        self._frozen = None
        self._start.weights[:] = [w.to(local(p), copy=True).view_as(local(p)) for p, w in pairs]
        self._start.state.put(plain)

    def _copy(self) -> _Point:
        return _Point([p.detach().clone() for p in self._local()], ModuleState(self._model))

    @torch.no_grad()
    def _go_to(self, point: _Point) -> None:
        reshard(self._model)
        torch._foreach_copy_(self._local(), point.weights)
        point.state.restore()

    def _local(self) -> list[Tensor]:
        """Looked up each time: FSDP2 may exchange the tensor that holds a shard."""
        return [local(p) for p in self._params]


@dataclass(frozen=True)
class _Point:
    weights: list[Tensor]
    state: ModuleState


def _is_expanded(buffer: Tensor) -> bool:
    """Several of its elements are one in memory: nobody can write to it, so nobody has."""
    return any(stride == 0 and size > 1 for stride, size in zip(buffer.stride(), buffer.shape, strict=True))


def _clone(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.detach().clone()
