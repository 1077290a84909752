"""What one step does to a flat vector, for each optimizer that can be compiled.

A rule is the arithmetic of the optimizer's own step, written without side effects; the optimizer's state goes in flat
and comes back out, so that `optimizer.state` is between two epochs what an eager run would have left there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adadelta, Adagrad, Adam, AdamW, Optimizer

from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.optim import CMA, IG, CMALight, Controlled

State = tuple[Tensor, ...]
Group = dict[str, Any]


@dataclass(frozen=True)
class StepRule(ABC):
    """The arithmetic of one step, one place per group; two rules that are equal compile to the same step.

    Attributes:
        weight_decays: of each group.
        penalties: what each group adds to an observed loss, times ‖w‖².
        scales_short_batches: whether a short last batch takes a shorter step.
    """

    weight_decays: tuple[float, ...]
    penalties: tuple[float, ...]
    scales_short_batches: bool

    @abstractmethod
    def state(self, optimizer: Optimizer, layout: Layout) -> State:
        """The optimizer's state, flat; zeros where it has taken no step yet.

        Args:
            optimizer: Whose state it is.
            layout: Which part of a flat vector each parameter is.

        Returns:
            What `step` takes and gives.
        """

    @abstractmethod
    def put_state(self, state: State, optimizer: Optimizer, layout: Layout) -> None:
        """Into `optimizer.state`, as the optimizer itself would have it.

        Args:
            state: As `step` gave it.
            optimizer: Whose state it becomes.
            layout: As in `state`.
        """

    @abstractmethod
    def step(self, group: int, weights: Tensor, gradient: Tensor, state: State, lr: Tensor) -> tuple[Tensor, State]:
        """The weights of one group and their state after a step; `lr` is a scalar in double precision.

        Args:
            group: The number of the parameter group.
            weights: Of that group, flat.
            gradient: Of the batch's mean loss, flat.
            state: Of that group, flat.
            lr: Its step size, a scalar in double precision.

        Returns:
            The new weights, and the new state.
        """


@dataclass(frozen=True)
class GradientStep(StepRule):
    """w − lr (∇ + weight_decay w): ours, and SGD without momentum."""

    moves: tuple[bool, ...]  # ours leave a group alone whose lr is 0

    def state(self, optimizer: Optimizer, layout: Layout) -> State:  # noqa: ARG002
        """Nothing."""
        return ()

    def put_state(self, state: State, optimizer: Optimizer, layout: Layout) -> None:
        """Nothing."""

    def step(self, group: int, weights: Tensor, gradient: Tensor, state: State, lr: Tensor) -> tuple[Tensor, State]:
        """A plain gradient step."""
        if not self.moves[group]:
            return weights, state
        return weights - lr.to(weights.dtype) * _decayed(gradient, weights, self.weight_decays[group]), state


@dataclass(frozen=True)
class MomentumStep(StepRule):
    """SGD with momentum; a first step from a velocity of 0 is torch's, as there is no dampening."""

    momenta: tuple[float, ...]
    nesterov: tuple[bool, ...]

    def state(self, optimizer: Optimizer, layout: Layout) -> State:
        """The velocity."""
        return (_gathered("momentum_buffer", optimizer, layout),)

    def put_state(self, state: State, optimizer: Optimizer, layout: Layout) -> None:
        """The velocity."""
        _scatter("momentum_buffer", state[0], optimizer, layout)

    def step(self, group: int, weights: Tensor, gradient: Tensor, state: State, lr: Tensor) -> tuple[Tensor, State]:
        """A step along the velocity."""
        momentum = self.momenta[group]
        gradient = _decayed(gradient, weights, self.weight_decays[group])
        velocity = momentum * state[0] + gradient
        direction = gradient + momentum * velocity if self.nesterov[group] else velocity
        return weights - lr.to(weights.dtype) * direction, (velocity,)


@dataclass(frozen=True)
class CountedStep(StepRule):
    """Of torch's adaptive optimizers, whose state is the number of the step, one for all parameters, and averages."""

    @property
    @abstractmethod
    def averages(self) -> tuple[str, ...]:
        """Their names in `optimizer.state`."""

    def state(self, optimizer: Optimizer, layout: Layout) -> State:
        """The number of the step, and the averages."""
        steps = {float(optimizer.state[p]["step"]) if optimizer.state.get(p) else 0.0 for p in layout.params}
        if len(steps) > 1:
            raise CannotCompile("its parameters have not taken the same number of steps")
        number = torch.tensor(steps.pop(), dtype=torch.float64)
        return (number, *(_gathered(name, optimizer, layout) for name in self.averages))

    def put_state(self, state: State, optimizer: Optimizer, layout: Layout) -> None:
        """The number of the step, and the averages."""
        for p in layout.params:
            own = optimizer.state[p]
            if "step" not in own:
                wide = torch.get_default_dtype() is torch.float64
                own["step"] = torch.zeros((), dtype=torch.float64 if wide else torch.float32)
            own["step"].copy_(state[0])
        for name, values in zip(self.averages, state[1:], strict=True):
            _scatter(name, values, optimizer, layout)


@dataclass(frozen=True)
class AdamStep(CountedStep):
    """Adam and AdamW."""

    betas: tuple[tuple[float, float], ...]
    eps: tuple[float, ...]
    amsgrad: tuple[bool, ...]
    decoupled: tuple[bool, ...]

    @property
    def averages(self) -> tuple[str, ...]:
        """The moments."""
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if any(self.amsgrad) else []))

    def step(self, group: int, weights: Tensor, gradient: Tensor, state: State, lr: Tensor) -> tuple[Tensor, State]:
        """A step by the moments."""
        number, mean, square, *largest = state
        (beta1, beta2), decay = self.betas[group], self.weight_decays[group]
        if self.decoupled[group] and decay:
            weights = weights * (1 - lr * decay).to(weights.dtype)
        elif decay:
            gradient = gradient + decay * weights
        number = number + 1
        mean = mean + (1 - beta1) * (gradient - mean)
        square = beta2 * square + (1 - beta2) * gradient * gradient
        step_size = (lr / (1 - torch.pow(torch.full_like(number, beta1), number))).to(weights.dtype)
        root = (1 - torch.pow(torch.full_like(number, beta2), number)).sqrt().to(weights.dtype)
        if largest:
            largest = [torch.maximum(largest[0], square)]
        denominator = (largest[0] if largest else square).sqrt() / root + self.eps[group]
        return weights - step_size * (mean / denominator), (number, mean, square, *largest)


@dataclass(frozen=True)
class AdagradStep(CountedStep):
    """Adagrad."""

    eps: tuple[float, ...]
    lr_decays: tuple[float, ...]

    @property
    def averages(self) -> tuple[str, ...]:
        """The sum of squares."""
        return ("sum",)

    def step(self, group: int, weights: Tensor, gradient: Tensor, state: State, lr: Tensor) -> tuple[Tensor, State]:
        """A step by the sum of squares."""
        number, squares = state
        gradient = _decayed(gradient, weights, self.weight_decays[group])
        squares = squares + gradient * gradient
        step_size = (lr / (1 + number * self.lr_decays[group])).to(weights.dtype)
        return weights - step_size * (gradient / (squares.sqrt() + self.eps[group])), (number + 1, squares)


@dataclass(frozen=True)
class AdadeltaStep(CountedStep):
    """Adadelta."""

    rhos: tuple[float, ...]
    eps: tuple[float, ...]

    @property
    def averages(self) -> tuple[str, ...]:
        """Of the squares of gradients, and of those of steps."""
        return ("square_avg", "acc_delta")

    def step(self, group: int, weights: Tensor, gradient: Tensor, state: State, lr: Tensor) -> tuple[Tensor, State]:
        """A step by the ratio of the two averages."""
        number, squares, moves = state
        rho, eps = self.rhos[group], self.eps[group]
        gradient = _decayed(gradient, weights, self.weight_decays[group])
        squares = rho * squares + (1 - rho) * gradient * gradient
        move = (moves + eps).sqrt() / (squares + eps).sqrt() * gradient
        moves = rho * moves + (1 - rho) * move * move
        return weights - lr.to(weights.dtype) * move, (number + 1, squares, moves)


Maker = Callable[[Optimizer], StepRule]


def register(kind: type[Optimizer], maker: Maker) -> None:
    """Make epochs of this optimizer, not of its subclasses, compile by the rule that `maker` gives for one.

    An optimizer that wraps another one registers `lambda it: replace(step_rule(it.base), penalties=...)`.

    Args:
        kind: the class of the optimizer.
        maker: gives the rule for one, or raises `CannotCompile` with the reason.
    """
    _MAKERS[kind] = maker


def step_rule(optimizer: Optimizer) -> StepRule:
    """The rule as the optimizer's groups have it now; raises CannotCompile where there is none."""
    maker = _of_parts if hasattr(optimizer, "parts") else _MAKERS.get(type(optimizer))
    if maker is None:
        known = ", ".join(kind.__name__ for kind in _MAKERS)
        raise CannotCompile(f"the steps of {type(optimizer).__name__} are not compiled, only those of {known}")
    for group in optimizer.param_groups:
        for flag in ("maximize", "capturable", "differentiable"):
            if group.get(flag):
                raise CannotCompile(f"{type(optimizer).__name__} has {flag}=True")
        if isinstance(group["lr"], Tensor):
            raise CannotCompile("lr is a Tensor")
    return maker(optimizer)


def _ours(optimizer: Optimizer) -> StepRule:
    groups = optimizer.param_groups
    decays = _each(groups, "weight_decay")
    return GradientStep(
        weight_decays=decays,
        penalties=tuple(0.5 * decay for decay in decays),
        scales_short_batches=True,
        moves=tuple(bool(group["lr"]) for group in groups),
    )


def _sgd(optimizer: Optimizer) -> StepRule:
    groups = optimizer.param_groups
    decays, momenta = _each(groups, "weight_decay"), _each(groups, "momentum")
    if any(group["dampening"] for group in groups):
        raise CannotCompile("SGD has a dampening")
    unwatched = (0.0,) * len(groups)
    if not any(momenta):
        return GradientStep(decays, unwatched, scales_short_batches=False, moves=(True,) * len(groups))
    if not all(momenta):
        raise CannotCompile("SGD has groups with and without momentum")
    return MomentumStep(
        decays, unwatched, scales_short_batches=False, momenta=momenta, nesterov=_each(groups, "nesterov")
    )


def _adam(optimizer: Optimizer) -> StepRule:
    groups = optimizer.param_groups
    betas = _each(groups, "betas")
    if any(isinstance(beta, Tensor) for pair in betas for beta in pair):
        raise CannotCompile("Adam's betas are Tensors")
    amsgrad = _each(groups, "amsgrad")
    if any(amsgrad) and not all(amsgrad):
        raise CannotCompile("Adam has groups with and without amsgrad")
    return AdamStep(
        weight_decays=_each(groups, "weight_decay"),
        penalties=(0.0,) * len(groups),
        scales_short_batches=False,
        betas=tuple((float(first), float(second)) for first, second in betas),
        eps=_each(groups, "eps"),
        amsgrad=amsgrad,
        decoupled=tuple(bool(g.get("decoupled_weight_decay", type(optimizer) is AdamW)) for g in groups),
    )


def _adagrad(optimizer: Optimizer) -> StepRule:
    groups = optimizer.param_groups
    return AdagradStep(
        weight_decays=_each(groups, "weight_decay"),
        penalties=(0.0,) * len(groups),
        scales_short_batches=False,
        eps=_each(groups, "eps"),
        lr_decays=_each(groups, "lr_decay"),
    )


def _adadelta(optimizer: Optimizer) -> StepRule:
    groups = optimizer.param_groups
    return AdadeltaStep(
        weight_decays=_each(groups, "weight_decay"),
        penalties=(0.0,) * len(groups),
        scales_short_batches=False,
        rhos=_each(groups, "rho"),
        eps=_each(groups, "eps"),
    )


def _controlled(optimizer: Optimizer) -> StepRule:
    if not isinstance(optimizer, Controlled):
        raise TypeError(f"expected a Controlled optimizer, got {type(optimizer).__name__}")
    penalties = tuple(0.5 * optimizer.steps.weight_decay_of(group) for group in optimizer.param_groups)
    if optimizer.base._optimizer_step_pre_hooks or optimizer.base._optimizer_step_post_hooks:
        raise CannotCompile("the optimizer inside has hooks on its steps")
    return replace(step_rule(optimizer.base), penalties=penalties)


def _of_parts(optimizer: Optimizer) -> StepRule:
    """Of an optimizer around others, which are its `parts`, as a schedule is."""
    parts = optimizer.parts  # type: ignore[attr-defined]
    if len(parts) > 1:
        raise CannotCompile("there are several optimizers side by side")
    (base,) = parts
    if base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks:
        raise CannotCompile("the optimizer inside has hooks on its steps")
    return step_rule(base)


_MAKERS: dict[type[Optimizer], Maker] = {
    CMALight: _ours,
    CMA: _ours,
    IG: _ours,
    Controlled: _controlled,
    SGD: _sgd,
    Adam: _adam,
    AdamW: _adam,
    Adagrad: _adagrad,
    Adadelta: _adadelta,
}


def _each(groups: list[Group], name: str) -> tuple[Any, ...]:
    return tuple(group[name] for group in groups)


def _decayed(gradient: Tensor, weights: Tensor, decay: float) -> Tensor:
    return gradient + decay * weights if decay else gradient


def _gathered(name: str, optimizer: Optimizer, layout: Layout) -> Tensor:
    """Of all parameters, or zeros where none has taken a step."""
    held = [optimizer.state[p].get(name) if p in optimizer.state else None for p in layout.params]
    present = [t for t in held if t is not None]
    if not present:
        return torch.zeros(layout.groups[-1][1], dtype=layout.dtype)
    if len(present) != len(held):
        raise CannotCompile(f"only some of its parameters have a {name}")
    return layout.flat(present)


def _scatter(name: str, flat: Tensor, optimizer: Optimizer, layout: Layout) -> None:
    for p in layout.params:
        if optimizer.state[p].get(name) is None:
            optimizer.state[p][name] = torch.zeros_like(p, memory_format=torch.preserve_format)
    layout.put(flat, [optimizer.state[p][name] for p in layout.params])
