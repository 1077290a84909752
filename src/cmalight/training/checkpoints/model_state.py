"""All of a model that training changes, also what `state_dict` leaves out, taken and put back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelState:
    """Plain values and tensors, by the names that torch gives them.

    Attributes:
        parameters: by name.
        buffers: all of them; those of other shapes than the model's own, and new ones, take their place.
        transient: the names of the buffers that `state_dict` leaves out.
        extra: what `get_extra_state` of a module gave, by the module's name.
    """

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor | None]
    transient: tuple[str, ...]
    extra: dict[str, Any]

    @classmethod
    def of(cls, model: nn.Module) -> ModelState:
        """The state of a model; the tensors are the model's own, not copies."""
        buffers: dict[str, Tensor | None] = {}
        transient, extra = [], {}
        for prefix, module in model.named_modules():
            for name, buffer in module._buffers.items():
                buffers[_joined(prefix, name)] = None if buffer is None else buffer.detach()
            transient += [_joined(prefix, name) for name in module._non_persistent_buffers_set]
            if type(module).get_extra_state is not nn.Module.get_extra_state:
                extra[prefix] = module.get_extra_state()
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        return cls(parameters, buffers, tuple(sorted(transient)), extra)

    def copied(self) -> ModelState:
        """The same, in memory of its own."""
        return copy.deepcopy(self)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return {**self.parameters, **{name: b for name, b in self.buffers.items() if b is not None}}

    def require_fit(self, model: nn.Module) -> None:
        """Raises ValueError where the model has other parameters or modules, or a layer of torch other buffers."""
        modules = dict(model.named_modules())
        if different := _difference(dict(model.named_parameters()), self.parameters):
            raise ValueError(f"the saved weights belong to another model: {different}")
        if missing := [name for name in (*map(_owner, self.buffers), *self.extra) if name not in modules]:
            raise ValueError(f"the saved weights belong to another model: it has no module {missing[0]!r}")
        for prefix, module in modules.items():
            if type(module).__module__.startswith("torch."):  # an own module may change its buffers as it likes
                own = {_joined(prefix, n): b for n, b in module._buffers.items() if b is not None}
                saved = {n: b for n, b in self.buffers.items() if _owner(n) == prefix and b is not None}
                if different := _difference(own, saved):
                    raise ValueError(f"the saved buffers belong to another model: {different}")

    @torch.no_grad()
    def put(self, model: nn.Module) -> None:
        """Set a model to this state.

        Raises:
            ValueError: it is that of another model, which is then as before.
        """
        self.require_fit(model)
        for name, parameter in model.named_parameters():
            parameter.copy_(self.parameters[name])
        for prefix, module in model.named_modules():
            self._put_buffers(module, {n: b for n, b in self.buffers.items() if _owner(n) == prefix})
            if prefix in self.extra:
                module.set_extra_state(copy.deepcopy(self.extra[prefix]))

    def _put_buffers(self, module: nn.Module, saved: dict[str, Tensor | None]) -> None:
        values = {name.rpartition(".")[2]: (name, value) for name, value in saved.items()}
        for name in module._buffers.keys() - values.keys():
            delattr(module, name)
        for name, (full_name, value) in values.items():
            own = module._buffers.get(name)
            if own is not None and value is not None and _can_take(own, value):
                own.copy_(value)
            else:
                device = own.device if own is not None else next((p.device for p in module.parameters()), None)
                new = None if value is None else value.detach().clone().to(device)
                module._buffers.pop(name, None)
                module.register_buffer(name, new, persistent=full_name not in self.transient)

    def to_plain(self) -> dict[str, Any]:
        """For a file."""
        return {
            "parameters": self.parameters,
            "buffers": {name: None if b is None else b.contiguous() for name, b in self.buffers.items()},
            "transient": list(self.transient),
            "extra": self.extra,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> ModelState:
        return cls(plain["parameters"], plain["buffers"], tuple(plain["transient"]), plain["extra"])


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _difference(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> str:
    """The first shape that differs, in words."""
    for name in {**own, **saved}:
        was, now = (_described(side.get(name)) for side in (saved, own))
        if was != now:
            return f"{name} was {was}, and is {now}"
    return ""


def _described(tensor: Tensor | None) -> str:
    return "not there" if tensor is None else f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _can_take(own: Tensor, value: Tensor) -> bool:
    """In place; nobody can write to an expanded tensor."""
    return (own.shape, own.dtype) == (value.shape, value.dtype) and 0 not in own.stride()
