"""The loops over batches and over chunks as functions of tensors, compiled by torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from cmalight.compiled.blocks import Progress, Watch, by_groups, first_line, penalty_of
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.steps import State, StepRule
from cmalight.compiled.traced.products import decompositions


def make_block(
    loss: Callable[..., Tensor], rule: StepRule, layout: Layout, *, many: bool
) -> Callable[..., tuple[Progress, Tensor]]:
    """Steps over the batches from `begun.batch` to `stop`; with the progress comes ‖w − w^k‖.

    many: several starts at once, each a row of the weights; all see the same batches
    The step sizes of the groups come batch by batch, for each part of the order.
    """
    from torch._higher_order_ops.while_loop import while_loop

    gradient_and_loss = grad_and_value(loss)
    groups = layout.groups

    def step(
        weights: Tensor, state: State, lr: Tensor, inputs: Tensor, target: Tensor
    ) -> tuple[Tensor, State, Tensor, Tensor]:
        gradient, value = gradient_and_loss(weights, inputs, target)
        new_weights, new_state = by_groups(rule, groups, weights, gradient, state, lr)
        return new_weights, new_state, value.double(), penalty_of(rule, groups, weights)

    steps = vmap(step, in_dims=(0, 0, 0, None, None)) if many else step

    def block(
        begun: Progress,
        watch: Watch,
        inputs: Tensor,
        targets: Tensor,
        rows: tuple[Tensor, ...],
        stop: Tensor,
        lr: tuple[Tensor, ...],
    ) -> tuple[Progress, Tensor]:
        carried = (begun.batch, begun.going, begun.total, begun.lowest, begun.weights, *begun.state)
        # Cloned, because a loop must not hand out what it was given.
        carried = tuple(t.clone() for t in carried)
        for part, part_rows in enumerate(rows):
            first = sum(len(before) for before in rows[:part])
            carried = loop(carried, watch, inputs, targets, part_rows, stop, lr[part], first)
        batch, going, total, lowest, weights, *state = carried
        moved = (weights - watch.start).double().square().sum(-1).sqrt()
        for held in (t for t in state if t.shape == weights.shape):  # where the state is not finite, it is infinite
            moved = torch.where(held.isfinite().all(-1), moved, torch.inf)
        return Progress(batch, going, total, lowest, weights, tuple(state)), moved

    def loop(
        carried: tuple[Tensor, ...],
        watch: Watch,
        inputs: Tensor,
        targets: Tensor,
        rows: Tensor,
        stop: Tensor,
        lr: Tensor,
        first: int,
    ) -> Any:
        end = torch.clamp(stop, max=first + len(rows))

        def goes_on(batch: Tensor, going: Tensor, *_: Tensor) -> Tensor:
            return going & (batch < end)

        def body(batch: Tensor, going: Tensor, total: Tensor, lowest: Tensor, weights: Tensor, *state: Tensor) -> Any:
            here = (batch - first).view(1)
            samples = rows.index_select(0, here).view(-1)
            new_weights, new_state, value, added = steps(
                weights,
                state,
                lr.index_select(0, here).squeeze(0),
                inputs.index_select(0, samples),
                targets.index_select(0, samples),
            )
            new_total = total + rows.shape[1] * (value + added)
            new_lowest = torch.minimum(lowest, value)
            if many:
                keep = watch.active
                new_weights = _where(keep, new_weights, weights)
                new_state = tuple(_where(keep, new, old) for new, old in zip(new_state, state, strict=True))
                new_total, new_lowest = _where(keep, new_total, total), _where(keep, new_lowest, lowest)
            new_going = going.logical_and(going)
            if not first:
                doubtful = (new_lowest < 0) | ~(new_total / watch.samples <= watch.bound)
                new_going = ~((doubtful & watch.active).any() & watch.checks.index_select(0, here).view(()))
            return batch + 1, new_going, new_total, new_lowest, new_weights, *new_state

        return while_loop(goes_on, body, carried)  # type: ignore[no-untyped-call]

    return block


def make_evaluation(loss: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The sum of the mean losses of the chunks from `first` to `stop`."""
    from torch._higher_order_ops.while_loop import while_loop

    def evaluation(
        weights: Tensor, inputs: Tensor, targets: Tensor, first: Tensor, stop: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor]:
        def goes_on(chunk: Tensor, _: Tensor) -> Tensor:
            return chunk < stop

        def body(chunk: Tensor, total: Tensor) -> Any:
            here = chunk.view(1)
            value = loss(weights, *(t.index_select(0, here).squeeze(0) for t in (inputs, targets)))
            return chunk + 1, total + value.double()

        looped: Any = while_loop(goes_on, body, (first.clone(), total.clone()))  # type: ignore[no-untyped-call]
        return looped[0], looped[1]

    return evaluation


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in one graph, as native code, compiled when first called; CannotCompile where that fails."""
    from torch._dynamo.exc import TorchDynamoException

    # torch keeps what it compiled with the code, and up to a limit: every engine gets a code of its own.
    code: CodeType = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    own = FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    native = torch.compile(own, fullgraph=True, dynamic=False, backend=_native)

    @torch.no_grad()
    def call(*arguments: Any) -> Any:
        try:
            return native(*arguments)
        except TorchDynamoException as error:
            raise CannotCompile(f"torch.compile says: {first_line(error)}") from error

    return call


def _native(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, config_patches={"cpp_wrapper": True}, decompositions=decompositions())


_numbers = itertools.count()


def _where(keep: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(keep.view(-1, *[1] * (new.dim() - 1)), new, old)
