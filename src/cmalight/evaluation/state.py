"""The state of a run, in one place: weights, buffers and extra state of the modules, and the optimizer's state.

Rolling back, evaluating without a trace, checkpoints and the test for finite values all use this definition.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map

from cmalight.evaluation.norms import distance, finite_flags
from cmalight.evaluation.ranks import local_parts, reshard

# Entries of a parameter group that belong to the user and to schedulers. Everything else there is the optimizer's
# state: Prodigy and schedule-free optimizers keep theirs in the groups.
_OF_THE_USER = frozenset(
    (
        *("params", "lr", "scheduled_lr", "initial_lr", "max_lr", "min_lr", "betas", "momentum", "base_momentum"),
        *("max_momentum", "weight_decay", "eps", "foreach", "fused", "maximize", "capturable", "differentiable"),
        "param_names",
    )
)


class ModuleState:
    """A copy of what a forward pass may change in modules: their buffers, also replaced ones, and extra state."""

    def __init__(self, *roots: nn.Module, device: torch.device | None = None) -> None:
        modules = [module for root in roots for module in root.modules()]  # as in a model of the same build
        # A module without buffers counts, too: its first forward pass may register some.
        self._buffers = [(m, {n: (b, _clone(b, device)) for n, b in m._buffers.items()}) for m in modules]
        has_extra = [m for m in modules if type(m).get_extra_state is not nn.Module.get_extra_state]
        self._extra = [(m, copy.deepcopy(m.get_extra_state())) for m in has_extra]

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
    def take_finite_from(self, earlier: ModuleState) -> None:
        """Take from an earlier copy the buffers that were finite in it and are not in this one."""
        before = {(module, name): value for module, name, value in earlier._copies()}
        for module, name, now in self._copies():
            old = before.get((module, name))
            if old is not None and old.shape == now.shape and finite_flags([old, now]) == [True, False]:
                now.copy_(old)

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each buffer as it is now, and as it was."""
        found = [(module._buffers.get(name), value) for module, name, value in self._copies()]
        return [(buffer, value) for buffer, value in found if buffer is not None]

    def _copies(self) -> list[tuple[nn.Module, str, Tensor]]:
        found = [(m, name, value) for m, buffers in self._buffers for name, (_, value) in buffers.items()]
        return [(module, name, value) for module, name, value in found if value is not None]

    def state_dict(self) -> dict[str, Any]:
        """The copies, without the modules."""
        return {
            "buffers": [{name: value for name, (_, value) in buffers.items()} for _, buffers in self._buffers],
            "extra": [state for _, state in self._extra],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take the copies of modules of the same build."""
        if len(saved["buffers"]) != len(self._buffers):
            raise ValueError(
                f"The state_dict has the buffers of {len(saved['buffers'])} modules, and this optimizer has "
                f"{len(self._buffers)}: make it with the same model and objective as the one that was saved"
            )
        pairs = zip(self._buffers, saved["buffers"], strict=True)
        self._buffers = [
            (module, {n: (_place_for(module._buffers.get(n), value), _clone(value)) for n, value in values.items()})
            for (module, _), values in pairs
        ]
        self._extra = [(module, state) for (module, _), state in zip(self._extra, saved["extra"], strict=True)]


@dataclass
class Snapshot:
    """A copy of the state of a run.

    Attributes:
        weights: Of this rank, if they are sharded.
        modules: Buffers and extra state.
        state: The optimizer's `state`, by parameter or whatever else it uses as keys.
        groups: What the optimizer keeps in its parameter groups, beside what the user set there.
        attributes: What the optimizer keeps in attributes of its own.
    """

    weights: list[Tensor]
    modules: ModuleState
    state: dict[Any, Any]
    groups: list[dict[str, Any]]
    attributes: dict[str, Any]


class RunState:
    """All that training changes.

    Args:
        optimizer: Its parameters are trained, and its state counts.
        modules: The model and, if it is a module, the loss; the first may be wrapped in DDP or sharded by FSDP2.
        device: Device of the snapshots; None keeps each copy beside its original.
    """

    def __init__(
        self, optimizer: Optimizer, modules: Sequence[nn.Module] = (), device: torch.device | None = None
    ) -> None:
        self._optimizer = optimizer
        self._device = device
        self.modules = tuple(modules)

    @property
    def parameters(self) -> list[Tensor]:
        """Every parameter in the groups, frozen ones too: they may be thawed in mid-run."""
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def snapshot(self) -> Snapshot:
        """Copy everything."""
        return Snapshot(
            weights=[self._copied(p) for p in local_parts(self.parameters)],
            state={key: self._copied(value) for key, value in self._optimizer.state.items()},
            **self._small_copies(),
        )

    @torch.no_grad()
    def refresh(self, old: Snapshot) -> Snapshot:
        """Copy everything, into the memory of an old snapshot of as many weights; the old one is lost."""
        pairs, now = _Pairs(old.weights, local_parts(self.parameters)), self._optimizer.state
        state = {key: pairs.matched(old.state.get(key), now[key], otherwise=self._copied) for key in now}
        pairs.copy()
        return Snapshot(weights=old.weights, state=state, **self._small_copies())

    def _small_copies(self) -> dict[str, Any]:
        groups = [{k: v for k, v in g.items() if k not in _OF_THE_USER} for g in self._optimizer.param_groups]
        return {
            "modules": ModuleState(*self.modules, device=self._device),
            "groups": self._copied(groups),
            "attributes": self._copied(_attributes(self._optimizer)),
        }

    def extend(self, snapshot: Snapshot) -> None:
        """The optimizer has new groups, which the snapshot takes as they are now."""
        now = self.snapshot()
        snapshot.weights += now.weights[len(snapshot.weights) :]
        snapshot.groups += now.groups[len(snapshot.groups) :]

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Put everything back, bit for bit and in place."""
        self.go_to(snapshot.weights)
        snapshot.modules.restore()
        state, pairs = self._optimizer.state, _Pairs()
        for key in [key for key in state if key not in snapshot.state]:
            del state[key]
        for key, saved in snapshot.state.items():
            p = key if isinstance(key, Tensor) else None
            restored = pairs.matched(state.get(key), saved, otherwise=partial(_placed, p))
            if isinstance(restored, dict) and isinstance(state.get(key), dict):
                state[key].clear()
                state[key].update(restored)
            else:
                state[key] = restored
        for group, saved in zip(self._optimizer.param_groups, snapshot.groups, strict=False):
            for name in [name for name in group if name not in _OF_THE_USER and name not in saved]:
                del group[name]
            group.update(pairs.matched(group, saved, otherwise=partial(_placed, None)))
        attributes = vars(self._optimizer)
        attributes.update(pairs.matched(attributes, snapshot.attributes, otherwise=partial(_placed, None)))
        pairs.copy()

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

    def is_finite(self, snapshot: Snapshot | None) -> bool:
        """Whether all that was finite in the snapshot still is; one wait for the device.

        A buffer that was never finite, such as an attention mask of −inf, does not count.
        """
        now: list[Tensor] = self.parameters
        before: list[Any] = list(snapshot.weights) if snapshot is not None else [None] * len(now)
        for buffer, value in snapshot.modules.pairs() if snapshot is not None else ():
            now.append(buffer)
            before.append(value)
        for key, value in self._optimizer.state.items():
            saved = tree_leaves(snapshot.state.get(key)) if snapshot is not None else []
            leaves = tree_leaves(value)
            now += [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            old = saved if len(saved) == len(leaves) else [None] * len(leaves)
            before += [o for leaf, o in zip(leaves, old, strict=True) if isinstance(leaf, Tensor)]
        suspects = [old for flag, old in zip(finite_flags(local_parts(now)), before, strict=True) if not flag]
        return not any(old is None or finite_flags(local_parts([old]))[0] for old in suspects)

    def _copied(self, value: Any) -> Any:
        place = self._device
        return tree_map(lambda x: _clone(x, place) if isinstance(x, Tensor) else copy.deepcopy(x), value)

    def pack(self, snapshot: Snapshot) -> dict[str, Any]:
        """A snapshot as tensors and plain values, for a state_dict."""
        numbers = {p: i for i, p in enumerate(self.parameters)}
        return {
            **snapshot.modules.state_dict(),
            "weights": snapshot.weights,
            "state": {numbers.get(key, key): value for key, value in snapshot.state.items()},
            "groups": snapshot.groups,
            "attributes": snapshot.attributes,
        }

    def unpack(self, packed: dict[str, Any]) -> Snapshot:
        """What `pack` gave, for a model of the same build, on the devices where its parameters are now."""
        parameters, state = self.parameters, {}
        modules = ModuleState(*self.modules, device=self._device)
        modules.load_state_dict(packed)
        pairs = zip(local_parts(parameters), packed["weights"], strict=True)
        weights = [w.to(self._device or p.device, p.dtype, copy=True) for p, w in pairs]
        for key, value in packed["state"].items():
            p = parameters[key] if isinstance(key, int) else None
            placed = _placed(p, value) if self._device is None else self._copied(value)
            state[key if p is None else p] = placed
        return Snapshot(weights, modules, state, copy.deepcopy(packed["groups"]), copy.deepcopy(packed["attributes"]))


class _Pairs:
    """Tensors to be overwritten and their new values, copied in one call."""

    def __init__(self, targets: Sequence[Tensor] = (), sources: Sequence[Tensor] = ()) -> None:
        self._targets, self._sources = list(targets), list(sources)

    def matched(self, old: Any, new: Any, *, otherwise: Callable[[Any], Any]) -> Any:
        """`new` in the memory of `old`, entry by entry; an entry that does not fit is what `otherwise` makes of it."""
        if isinstance(new, dict):
            before = old if isinstance(old, dict) else {}
            return {k: self.matched(before.get(k), v, otherwise=otherwise) for k, v in new.items()}
        if isinstance(new, Tensor) and isinstance(old, Tensor) and old.shape == new.shape and old.dtype == new.dtype:
            self._targets.append(old)
            self._sources.append(new)
            return old
        return otherwise(new)

    def copy(self) -> None:
        if self._targets:
            torch._foreach_copy_(local_parts(self._targets), local_parts(self._sources))


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


def _attributes(optimizer: Optimizer) -> dict[str, Any]:
    """Numbers and tensors that an optimizer keeps beside `state` and `param_groups`, such as a counter of steps."""
    return {
        name: value
        for name, value in vars(optimizer).items()
        if not name.startswith("_optimizer_") and name not in _OF_TORCH and _is_plain(value)
    }


_OF_TORCH = frozenset(("state", "param_groups", "defaults", "step", "grad_scale", "found_inf"))


def _is_plain(value: Any) -> bool:
    leaves = tree_leaves(value)
    return all(
        (isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter)) or isinstance(leaf, bool | int | float)
        for leaf in leaves
    )


def _placed(p: Tensor | None, value: Any) -> Any:
    """A copy of a saved value; a step counter stays where torch keeps it: on the CPU, unless it was on a device."""

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return copy.deepcopy(leaf)
        return leaf.to(p.device, copy=True) if p is not None and leaf.dim() else leaf.clone()

    return tree_map(place, value)


def _is_expanded(buffer: Tensor) -> bool:
    """Several of its elements are one in memory: nobody can write to it, so nobody has."""
    return buffer.layout is torch.strided and any(
        stride == 0 and size > 1 for stride, size in zip(buffer.stride(), buffer.shape, strict=True)
    )


def _place_for(buffer: Tensor | None, value: Tensor | None) -> Tensor | None:
    """The buffer that takes a saved value: the module's, or a new one if it has grown or was not there yet."""
    if value is None or buffer is None:
        return _clone(value)
    fits = buffer.shape == value.shape and buffer.dtype == value.dtype
    return buffer if fits else value.to(buffer.device, copy=True)


def _clone(buffer: Tensor | None, device: torch.device | None = None) -> Tensor | None:
    return None if buffer is None or is_lazy(buffer) else buffer.detach().to(device or buffer.device, copy=True)
