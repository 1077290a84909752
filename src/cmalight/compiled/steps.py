"""The white list of optimizers, by exact type and option, and their state as the kernel sees it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, AdamW, Optimizer
from torch.optim import optimizer as optimizer_hooks

from cmalight.compiled import interface
from cmalight.compiled.interface import CannotCompile, Method
from cmalight.optim.cma import CMA
from cmalight.optim.cmalight import CMALight
from cmalight.optim.coff import COFF
from cmalight.optim.ig import IG
from cmalight.optim.soap import SOAP

_METHODS: dict[type[Optimizer], Method] = {
    SGD: Method.SGD,
    Adam: Method.ADAM,
    AdamW: Method.ADAM,
    Adagrad: Method.ADAGRAD,
    Adadelta: Method.ADADELTA,
    SOAP: Method.SOAP,
    **dict.fromkeys((CMALight, CMA, IG, COFF), Method.GRADIENT),
}
_REFUSED = ("maximize", "capturable", "differentiable", "amsgrad")
# The state of a parameter besides the count of steps, in the kernel's order.
_STATE = {
    Method.SGD: ("momentum_buffer",),
    Method.ADAM: ("exp_avg", "exp_avg_sq"),
    Method.SOAP: ("exp_avg", "exp_avg_sq", "left", "left_basis", "right", "right_basis"),
    Method.ADAGRAD: ("sum",),
    Method.ADADELTA: ("square_avg", "acc_delta"),
}


class Steps:
    """The steps of one optimizer on the parameters of one model; CannotCompile if it is not on the white list.

    Options and state of the optimizer are read anew at every call.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self.method = _method(optimizer)
        self._optimizer = optimizer
        self._groups = optimizer.param_groups
        group_of = {id(p): number for number, group in enumerate(self._groups) for p in group["params"]}
        if group_of.keys() - {id(p) for p in parameters}:
            raise CannotCompile("the optimizer has parameters that are not the model's")
        self.group_of = [group_of.get(id(p), -1) if p.requires_grad else -1 for p in parameters]
        self._trained = [p for p, number in zip(parameters, self.group_of, strict=True) if number >= 0]
        if not self._trained:
            raise CannotCompile("the optimizer trains no parameter of the model")
        if self.method is Method.GRADIENT:
            for group in self._groups:
                if group["weight_decay"] and not all(p.requires_grad for p in group["params"]):
                    raise CannotCompile("a group with weight decay has parameters that are not trained")
        self._parameters = parameters
        self._new: list[tuple[nn.Parameter, dict[str, Any]]] = []

    @property
    def needs_eager_step(self) -> bool:
        """Whether SOAP has no bases yet for some parameter: its first step finds them by torch's eigh."""
        if self.method is not Method.SOAP:
            return False
        state = self._optimizer.state
        return any(p not in state or state[p].get("step", -1) < 0 for p in self._trained)

    def groups(self) -> ctypes.Array[interface.Group]:
        """The options of every parameter group as they are now."""
        result = (interface.Group * len(self._groups))()
        for one, group in zip(result, self._groups, strict=True):
            one.lr, one.weight_decay = float(group["lr"]), float(group["weight_decay"])
            if self.method is Method.SGD:
                one.first, one.second, one.flag = group["momentum"], group["dampening"], group["nesterov"]
            elif self.method is Method.ADAGRAD:
                one.first, one.eps = group["lr_decay"], group["eps"]
            elif self.method is Method.ADADELTA:
                one.first, one.eps = group["rho"], group["eps"]
            elif self.method is not Method.GRADIENT:
                one.first, one.second = group["betas"]
                one.eps = group["eps"]
                decoupled = isinstance(self._optimizer, AdamW)  # before torch 2.7 its groups do not say it
                one.flag = self.method is Method.SOAP or bool(group.get("decoupled_weight_decay", decoupled))
                one.refresh_interval = group.get("refresh_interval", 1)
        return result

    def tensors(self) -> list[Tensor]:
        """The state tensors that the kernel writes, for torch to count as changed."""
        state = self._optimizer.state
        return [t for p in self._trained if p in state for t in state[p].values() if isinstance(t, Tensor)]

    def fill(self, structures: ctypes.Array[interface.Parameter]) -> None:
        """Put the addresses of the parameters' state as they are now into the kernel's structures, one per parameter.

        CannotCompile: the state does not fit the parameter, or entries are missing.
        """
        self._new = []
        if self.method is Method.GRADIENT:
            return
        for one, param, number in zip(structures, self._parameters, self.group_of, strict=True):
            if number < 0:
                continue
            state = self._optimizer.state.get(param, {})
            if self.method is Method.SGD:
                one.fresh = state.get("momentum_buffer") is None
                if not self._groups[number]["momentum"]:
                    state = {}
                elif one.fresh:
                    state = self._created(param, {})
            else:
                state = self._counted(param, state)
                one.steps = float(state["step"])
            for place, name in enumerate(_STATE[self.method]):
                shape = param.shape if place < 2 else (_side(param, name),) * 2
                one.state[place] = _address(state[name], shape, param.dtype) if name in state else None

    def _counted(self, param: nn.Parameter, state: dict[str, Any]) -> dict[str, Any]:
        is_soap = self.method is Method.SOAP
        if not state and self.method is not Method.ADAGRAD:  # which has its state from the beginning
            return self._created(param, {"step": torch.tensor(0.0)})
        missing = {"step", *_STATE[self.method]} - state.keys()
        if is_soap:  # only sides up to `max_side` have a factor and its basis
            missing -= {name for side in ("left", "right") if side not in state for name in (side, f"{side}_basis")}
        if missing:
            raise CannotCompile(f"the optimizer's state has no {', '.join(sorted(missing))}")
        if not isinstance(state["step"], int if is_soap else Tensor):
            raise CannotCompile(f"the optimizer's state has the step {state['step']!r}")
        return state

    def _created(self, param: nn.Parameter, state: dict[str, Any]) -> dict[str, Any]:
        """The state before the first step, which `taken` gives to the optimizer."""
        state |= {name: torch.zeros_like(param) for name in _STATE[self.method]}
        self._new.append((param, state))
        return state

    def taken(self, count: int) -> None:
        """Write back what `fill` created, and count the steps that the kernel has taken since."""
        for param, state in self._new:
            self._optimizer.state[param].update(state)
        if self.method is Method.SOAP:
            for param in self._trained:
                self._optimizer.state[param]["step"] += count
        elif self.method not in (Method.GRADIENT, Method.SGD):
            torch._foreach_add_([self._optimizer.state[param]["step"] for param in self._trained], count)


@contextmanager
def scaled_lr(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Inside the block every lr is multiplied by a factor; at its end it is the user's again."""
    groups = optimizer.param_groups
    users = [group["lr"] for group in groups]
    try:
        for group, lr in zip(groups, users, strict=True):
            group["lr"] = lr * factor
        yield
    finally:
        for group, lr in zip(groups, users, strict=True):
            group["lr"] = lr


def _method(optimizer: Any) -> Method:
    kind = type(optimizer)
    method = _METHODS.get(kind)
    if method is None:
        raise CannotCompile(f"the optimizer {kind.__name__} is not one of {', '.join(k.__name__ for k in _METHODS)}")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise CannotCompile(f"{kind.__name__} has hooks")
    if optimizer_hooks._global_optimizer_pre_hooks or optimizer_hooks._global_optimizer_post_hooks:
        raise CannotCompile("there are global optimizer hooks")
    # Schedulers of torch wrap `step` to see that it was called, and change nothing else.
    if "step" in optimizer.__dict__ and not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        raise CannotCompile(f"{kind.__name__} has a step of its own")
    for group in optimizer.param_groups:
        for name in _REFUSED:
            if group.get(name):
                raise CannotCompile(f"{kind.__name__} has {name}=True")
        if isinstance(group["lr"], Tensor):
            raise CannotCompile(f"lr of {kind.__name__} is a Tensor; expected a float")
    return method


def _side(param: Tensor, name: str) -> int:
    return len(param) if name.startswith("left") else param.numel() // len(param)


def _address(tensor: Any, shape: Sequence[int], dtype: torch.dtype) -> int:
    if not isinstance(tensor, Tensor) or (tensor.dtype, tuple(tensor.shape)) != (dtype, tuple(shape)):
        raise CannotCompile("the optimizer's state does not fit its parameters")
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise CannotCompile("the optimizer's state is not contiguous on the CPU")
    return tensor.data_ptr()
