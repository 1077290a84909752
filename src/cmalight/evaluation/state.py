"""The state of a run, in one place: weights, buffers and extra state of model and loss, and the optimizer's state.

Rolling back, evaluating without a trace, checkpoints and the test for finite values all use this definition.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from cmalight.evaluation.norms import distance, finite_flags
from cmalight.evaluation.ranks import local_parts, reshard

# Entries of a parameter group that belong to the user and to schedulers; other numbers there are the base's own state
# (Prodigy and schedule-free optimizers keep theirs in the groups).
_OF_THE_USER = frozenset(
    (
        *("params", "lr", "initial_lr", "max_lr", "min_lr", "betas", "momentum", "base_momentum", "max_momentum"),
        *("weight_decay", "eps", "foreach", "fused", "maximize", "capturable", "differentiable", "param_names"),
    )
)


class ModuleState:
    """A copy of what a forward pass may change in modules: their buffers, also replaced ones, and extra state."""

    def __init__(self, *roots: nn.Module) -> None:
        self._buffers: list[tuple[nn.Module, dict[str, tuple[Tensor | None, Tensor | None]]]] = []
        self._extra: list[tuple[nn.Module, Any]] = []
        for root in roots:
            for module in root.modules():  # in an order that a model of the same build has, too
                self._buffers.append((module, {n: (b, _clone(b)) for n, b in module._buffers.items()}))
                if type(module).get_extra_state is not nn.Module.get_extra_state:
                    self._extra.append((module, copy.deepcopy(module.get_extra_state())))

    @torch.no_grad()
    def restore(self) -> None:
        """Put the buffers and the extra state back, bit for bit."""
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

    @torch.no_grad()
    def mend(self, earlier: ModuleState) -> None:
        """Take from an earlier copy the buffers that were finite in it and are not in this one."""
        before = dict(earlier._buffers)
        found = [
            (value, before.get(module, {}).get(name, (None, None))[1])
            for module, buffers in self._buffers
            for name, (_, value) in buffers.items()
        ]
        pairs = [(now, old) for now, old in found if now is not None and old is not None and now.shape == old.shape]
        flags = finite_flags([buffer for pair in pairs for buffer in pair])
        for (now, old), is_finite, was_finite in zip(pairs, flags[::2], flags[1::2], strict=True):
            if was_finite and not is_finite:
                now.copy_(old)

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each buffer as it is now, and as it was."""
        found = [(m._buffers.get(n), value) for m, buffers in self._buffers for n, (_, value) in buffers.items()]
        return [(buffer, value) for buffer, value in found if buffer is not None and value is not None]

    def state_dict(self) -> dict[str, Any]:
        """The copies, without the modules."""
        return {
            "buffers": [{name: value for name, (_, value) in buffers.items()} for _, buffers in self._buffers],
            "extra": [state for _, state in self._extra],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take the copies of modules of the same build."""
        pairs = zip(self._buffers, saved["buffers"], strict=True)
        self._buffers = [
            (module, {n: (_place_for(module._buffers.get(n), value), _clone(value)) for n, value in values.items()})
            for (module, _), values in pairs
        ]
        self._extra = [(module, state) for (module, _), state in zip(self._extra, saved["extra"], strict=True)]


@dataclass
class Snapshot:
    """A copy of the state of a run."""

    weights: list[Tensor]
    modules: ModuleState
    base: dict[Tensor, dict[str, Any]]
    groups: list[dict[str, Any]]


class RunState:
    """All that training changes.

    Args:
        optimizer: Whose parameters are trained, and whose own state counts.
        modules: The model and, where it is a module, the loss; the first may be wrapped in DDP or sharded by FSDP2.
    """

    def __init__(self, optimizer: Optimizer, modules: Sequence[nn.Module] = ()) -> None:
        self._optimizer = optimizer
        self.modules = tuple(modules)

    @property
    def parameters(self) -> list[Tensor]:
        """Every parameter in the groups, frozen ones too: they may be thawed in mid-run."""
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def snapshot(self) -> Snapshot:
        """Copy everything."""
        return Snapshot(
            weights=[p.detach().clone() for p in local_parts(self.parameters)],
            modules=ModuleState(*self.modules),
            base={p: {k: _copied(v) for k, v in own.items()} for p, own in self._optimizer.state.items()},
            groups=self._own_numbers(),
        )

    @torch.no_grad()
    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """The state as it is now, in the memory of an older snapshot where it fits."""
        here = local_parts(self.parameters)
        if len(here) != len(snapshot.weights):
            return self.snapshot()
        torch._foreach_copy_(snapshot.weights, here)
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        base: dict[Tensor, dict[str, Any]] = {}
        for p, own in self._optimizer.state.items():
            before = snapshot.base.get(p, {})
            base[p] = {}
            for key, value in own.items():
                old = before.get(key)
                if isinstance(value, Tensor) and isinstance(old, Tensor) and old.shape == value.shape:
                    targets.append(old)
                    sources.append(value)
                    base[p][key] = old
                else:
                    base[p][key] = _copied(value)
        if targets:
            torch._foreach_copy_(local_parts(targets), local_parts(sources))
        return Snapshot(snapshot.weights, ModuleState(*self.modules), base, self._own_numbers())

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Put everything back, bit for bit and in place."""
        self.go_to(snapshot.weights)
        snapshot.modules.restore()
        state = self._optimizer.state
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for p in [p for p in state if p not in snapshot.base]:
            del state[p]
        for p, saved in snapshot.base.items():
            own = state[p]
            for key in [key for key in own if key not in saved]:
                del own[key]
            for key, value in saved.items():
                here = own.get(key)
                if isinstance(value, Tensor) and isinstance(here, Tensor) and here.shape == value.shape:
                    targets.append(here)
                    sources.append(value)
                else:
                    own[key] = _copied(value)
        if targets:
            torch._foreach_copy_(local_parts(targets), local_parts(sources))
        for group, numbers in zip(self._optimizer.param_groups, snapshot.groups, strict=False):
            group.update(numbers)

    @torch.no_grad()
    def go_to(self, weights: Sequence[Tensor], fraction: float = 1.0, start: Sequence[Tensor] = ()) -> None:
        """Set the weights, or those at start + fraction · (weights − start)."""
        if self.modules:
            reshard(self.modules[0])
        here = local_parts(self.parameters)
        torch._foreach_copy_(here, list(weights))
        if fraction != 1.0:  # in place, so that no further copy of the parameters is held
            torch._foreach_sub_(here, list(start))
            torch._foreach_mul_(here, fraction)
            torch._foreach_add_(here, list(start))

    def distance_from(self, snapshot: Snapshot) -> float:
        """‖w − w of the snapshot‖, over all ranks that hold shards."""
        return distance(self.parameters, snapshot.weights)

    def is_finite(self, snapshot: Snapshot) -> bool:
        """Whether all that was finite in the snapshot still is; one wait for the device.

        A buffer that was never finite, such as an attention mask of −inf, does not count.
        """
        now, before = list[Tensor](self.parameters), list[Tensor | None](snapshot.weights)
        for buffer, value in snapshot.modules.pairs():
            now.append(buffer)
            before.append(value)
        for p, own in self._optimizer.state.items():
            saved = snapshot.base.get(p, {})
            for key, value in own.items():
                if isinstance(value, Tensor):
                    now.append(value)
                    before.append(saved.get(key))
        suspects = [old for flag, old in zip(finite_flags(local_parts(now)), before, strict=True) if not flag]
        return not any(old is None or finite_flags(local_parts([old]))[0] for old in suspects)

    def _own_numbers(self) -> list[dict[str, Any]]:
        """What the base keeps in its parameter groups, beside what the user set there."""
        plain = bool | int | float
        groups = self._optimizer.param_groups
        return [{k: v for k, v in g.items() if k not in _OF_THE_USER and isinstance(v, plain)} for g in groups]

    def pack(self, snapshot: Snapshot, *, weights: bool = True) -> dict[str, Any]:
        """A snapshot as tensors and plain values, for a state_dict; without `weights`, of the modules only.

        What is not in it is equal to the state that is saved beside it.
        """
        packed = snapshot.modules.state_dict()
        if weights:
            packed["weights"] = snapshot.weights
            packed["base"] = [snapshot.base.get(p) for p in self.parameters]
            packed["groups"] = snapshot.groups
        return packed

    def unpack(self, packed: dict[str, Any]) -> Snapshot:
        """What `pack` gave, for a model of the same build, on the devices where its parameters are now."""
        snapshot = self.snapshot()
        snapshot.modules.load_state_dict(packed)
        if "weights" in packed:
            pairs = zip(local_parts(self.parameters), packed["weights"], strict=True)
            snapshot.weights = [w.to(p.device, p.dtype, copy=True) for p, w in pairs]
            own = zip(self.parameters, packed["base"], strict=True)
            snapshot.base = {p: _on_device_of(p, values) for p, values in own if values is not None}
            snapshot.groups = copy.deepcopy(packed["groups"])
        return snapshot


@contextmanager
def modules_kept(*modules: nn.Module) -> Iterator[None]:
    """At the end of the block, buffers, extra state and train/eval modes are as they were before it."""
    state = ModuleState(*modules)
    modes = [(m, m.training) for root in modules for m in root.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        state.restore()


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _on_device_of(p: Tensor, values: dict[str, Any]) -> dict[str, Any]:
    """Step counters stay where torch keeps them: on the CPU, unless they were saved from a device."""
    return {
        k: v.to(p.device, copy=True) if isinstance(v, Tensor) and v.dim() else _copied(v) for k, v in values.items()
    }


def _is_expanded(buffer: Tensor) -> bool:
    """Several of its elements are one in memory: nobody can write to it, so nobody has."""
    return any(stride == 0 and size > 1 for stride, size in zip(buffer.stride(), buffer.shape, strict=True))


def _place_for(own: Tensor | None, value: Tensor | None) -> Tensor | None:
    """The buffer that takes a saved value: the module's own, or a new one where it has grown or was not there yet."""
    if value is None or own is None:
        return _clone(value)
    return own if own.shape == value.shape and own.dtype == value.dtype else value.to(own.device, copy=True)


def _clone(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None or is_lazy(buffer) else buffer.detach().clone()
