"""The native functions of a run: written out where all it does is known, else compiled by torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled.blocks import Loss, Progress, flat_loss
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.native import operations
from cmalight.compiled.native.program import Program
from cmalight.compiled.recorded.draws import Numbers, drawing_block, drawing_evaluation
from cmalight.compiled.recorded.passes import RecordedPasses, record_passes
from cmalight.compiled.recorded.recording import NotWritten
from cmalight.compiled.steps import State, StepRule
from cmalight.compiled.trust.surroundings import surroundings
from cmalight.compiled.trust.trials import trial

# The loops that are written have one thread; steps with so many multiplications are worth more, where there are more.
_WORTH_THREADS = 4_000_000


@dataclass(frozen=True)
class Functions:
    """A block of batches, and an evaluation, as `traced/loops.py` describes them; None for eager evaluations.

    draws: whether the evaluation draws random numbers
    """

    block: Callable[..., tuple[Progress, Tensor]]
    evaluation: Callable[..., tuple[Tensor, Tensor]] | None
    draws: bool = False


@dataclass(frozen=True)
class Plan:
    """How the functions of a run are made, before that is done.

    Attributes:
        program: the text, or None where torch's compiler is needed.
        reason: why it is, if it is.
        buffers: the names of those that a step changes; their values follow those of the optimizer's state.
        chunk: samples of a chunk of the evaluation.
    """

    program: Program | None
    reason: str
    buffers: tuple[str, ...]
    chunk: int
    _make: Callable[[], Functions]

    @property
    def is_ready(self) -> bool:
        """Whether there is nothing to be compiled any more."""
        return self.program is not None and self.program.is_ready

    def functions(self) -> Functions:
        """Ready to be called, or to be compiled by torch when first called; CannotCompile where that fails."""
        return self._make()


def plan(
    model: nn.Module,
    loss_fn: Loss,
    layout: Layout,
    rule: StepRule,
    state: State,
    data: Sequence[Tensor],
    sizes: Sequence[int],
    chunk: int,
    *,
    many: bool,
) -> Plan:
    """From recording a step and an evaluation.

    Args:
        model: that is trained.
        loss_fn: its loss.
        layout: of its parameters in the flat vector.
        rule: of the steps.
        state: of the optimizer of one start.
        data: all inputs and targets.
        sizes: of the full batches, and of a short last one.
        chunk: samples of a chunk of the evaluation, where batches can be evaluated together.
        many: whether there are several starts.

    Raises:
        CannotCompile: there is no compiler, or the model does what cannot be compiled.
    """

    def recorded(is_known: Callable[[Any], bool]) -> RecordedPasses:
        before = surroundings(model, loss_fn)
        with trial(model, loss_fn):
            passes = record_passes(model, loss_fn, layout, rule, state, data, sizes, chunk, is_known=is_known)
        if surroundings(model, loss_fn) != before:
            raise NotWritten("the model changes its own attributes, or variables that it reads")
        if many and passes.numbers.steps:
            raise CannotCompile("the model draws random numbers, and of several starts one draws after the other")
        return passes

    try:
        if torch.get_num_threads() > 1 and sizes[0] * layout.groups[-1][1] > _WORTH_THREADS:
            raise NotWritten("the steps are large, and there are threads to share them")
        passes = recorded(operations.is_known)
        program = Program(passes, layout, data, sizes)
        numbers, evaluation = passes.numbers, None if passes.evaluation is None else program.evaluation

        def written() -> Functions:
            program.build()
            return _given(numbers, program.block, evaluation)

        return Plan(program, "", passes.buffers, passes.chunk, written)
    except NotWritten as reason:
        return _traced_plan(model, loss_fn, layout, rule, data, chunk, str(reason), many=many)


def _traced_plan(
    model: nn.Module,
    loss_fn: Loss,
    layout: Layout,
    rule: StepRule,
    data: Sequence[Tensor],
    chunk: int,
    reason: str,
    *,
    many: bool,
) -> Plan:
    """By torch's compiler."""
    from cmalight.compiled.traced.loops import compiled, make_block, make_evaluation

    if not _has_side_effects(model, loss_fn, [t[:2] for t in data]):
        loss = flat_loss(model, loss_fn, layout)

        def of_model() -> Functions:
            block = make_block(loss, rule, layout, many=many)
            return Functions(compiled(block), compiled(make_evaluation(loss)))

        return Plan(None, reason, (), chunk, of_model)
    raise CannotCompile(f"the model draws random numbers or changes buffers, and is not written out: {reason}")


def _has_side_effects(model: nn.Module, loss_fn: Loss, batch: Sequence[Tensor]) -> bool:
    """Whether a forward pass changes buffers, or draws random numbers."""
    with trial(model, loss_fn), torch.no_grad():
        before = [buffer._version for buffer in model.buffers()], torch.get_rng_state()
        loss_fn(model(batch[0].clone()), batch[1])
        return [b._version for b in model.buffers()] != before[0] or not torch.equal(torch.get_rng_state(), before[1])


def _given(numbers: Numbers, block: Callable[..., Any], evaluation: Callable[..., Any] | None) -> Functions:
    """Functions that draw the random numbers for the steps and chunks of a call before it."""
    if numbers.steps:
        block = drawing_block(block, numbers.steps)
    if evaluation is not None and numbers.evaluation is not None:
        evaluation = drawing_evaluation(evaluation, numbers.evaluation)
    return Functions(block, evaluation, draws=numbers.evaluation is not None)
