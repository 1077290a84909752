"""Random numbers of a step, drawn before it by torch's own generator, in the order of an eager epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from cmalight.compiled.layout import CannotCompile

# What depends on nothing but a shape and plain numbers.
_KNOWN = ("bernoulli_", "uniform_", "normal_", "exponential_", "rand", "randn", "rand_like", "randn_like")
# The numbers of the batches of one call take about so many bytes.
_BYTES = 1 << 22


@dataclass(frozen=True)
class Draw:
    """One call; `form` has the shape and the strides of what it gives, on no device."""

    operation: Any
    has_tensor: bool
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    form: Tensor

    def into(self, place: Tensor) -> None:
        """The numbers that the call would give now."""
        made = self.operation(*([place] if self.has_tensor else []), *self.arguments, **self.options)
        if made is not place:
            place.copy_(made)


def is_draw(operation: Any, arguments: Sequence[Any], options: dict[str, Any]) -> bool:
    """Whether it can be made before the step that it belongs to."""
    name = str(operation._schema.name).removeprefix("aten::")
    tensors = [leaf for leaf in tree_leaves((arguments, options)) if isinstance(leaf, Tensor)]
    overwritten = bool(arguments) and tensors == [arguments[0]] and name.endswith(("_", "_like"))
    return name in _KNOWN and options.get("generator") is None and (not tensors or overwritten)


def draw_of(operation: Any, arguments: Sequence[Any], options: dict[str, Any], result: Tensor) -> Draw:
    """The call that gave `result`."""
    has_tensor = bool(arguments) and isinstance(arguments[0], Tensor)
    form = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
    return Draw(operation, has_tensor, tuple(arguments[has_tensor:]), options, form)


class Drawn:
    """The numbers of some batches of one size: a row for each, in which every draw has its place.

    Args:
        draws: of one batch, in their order.
        dtype: of the numbers.
        most: batches there are.

    Raises:
        CannotCompile: the numbers are of another type, or lie in memory with gaps.
    """

    def __init__(self, draws: Sequence[Draw], dtype: torch.dtype, most: int) -> None:
        self._draws = tuple(draws)
        sizes = [draw.form.numel() for draw in draws]
        for draw, size in zip(draws, sizes, strict=True):
            extent = 1 + sum((n - 1) * step for n, step in zip(draw.form.shape, draw.form.stride(), strict=True))
            if draw.form.dtype != dtype or extent != size:
                raise CannotCompile(f"random numbers of the type {draw.form.dtype}, or with gaps, are not drawn before")
        width = sum(sizes)
        self.capacity = max(1, min(most, _BYTES // max(1, width * dtype.itemsize)))
        self.rows = torch.empty(self.capacity, width, dtype=dtype)
        self._begins = [sum(sizes[:number]) for number in range(len(sizes))]
        self._chances = self._of_bernoulli(width, sizes)

    def places(self, row: Tensor) -> list[Tensor]:
        """Of each draw in a row."""
        forms = zip((draw.form for draw in self._draws), self._begins, strict=True)
        parts = [(row[begin : begin + form.numel()], form) for form, begin in forms]
        return [part.as_strided(form.shape, form.stride()) for part, form in parts]

    def fill(self, count: int) -> None:
        """The first rows, with what the next batches draw."""
        if self._chances is not None:
            torch.lt(self._uniform[:count].uniform_(), self._chances, out=self.rows[:count])
            return
        self._fill_one_by_one(count)

    def _fill_one_by_one(self, count: int) -> None:
        for row in self.rows[:count]:
            for draw, place in zip(self._draws, self.places(row), strict=True):
                draw.into(place)

    def _of_bernoulli(self, width: int, sizes: list[int]) -> Tensor | None:
        """What a uniform number has to be below to give 1, where that is how torch does it here; else None.

        A third of the time of `bernoulli_`, and all batches in one call.
        """
        if any(str(draw.operation) != "aten.bernoulli_.float" for draw in self._draws):
            return None
        each = [
            draw.arguments[0] if draw.arguments else 0.5 for draw in self._draws
        ]  # torch leaves out what is its default
        chances = torch.tensor(each, dtype=torch.float64).repeat_interleave(torch.tensor(sizes))
        self._uniform = torch.empty(self.capacity, width, dtype=torch.float64)
        before = torch.get_rng_state()
        try:
            self._fill_one_by_one(1)
            expected, after = self.rows[0].clone(), torch.get_rng_state()
            torch.set_rng_state(before)
            torch.lt(self._uniform[:1].uniform_(), chances, out=self.rows[:1])
            is_same = torch.equal(self.rows[0], expected) and torch.equal(torch.get_rng_state(), after)
        finally:
            torch.set_rng_state(before)
        return chances if is_same else None


@dataclass(frozen=True)
class Numbers:
    """All that a run draws; empty, and None, where that is nothing.

    Attributes:
        steps: for the full batches, and for a short last one.
        evaluation: for the chunks.
    """

    steps: tuple[Drawn, ...]
    evaluation: Drawn | None


def drawing_block(block: Callable[..., Any], parts: Sequence[Drawn]) -> Callable[..., Any]:
    """`block`, given the numbers of its batches; the generator ends where that of eager batches would."""
    arenas = tuple(part.rows for part in parts)

    def fill(rows: Sequence[Tensor], at: int, stop: int) -> None:
        full = len(rows[0])
        if at < min(stop, full):
            parts[0].fill(min(stop, full) - at)
        if stop > max(at, full):
            parts[1].fill(1)

    def call(begun: Any, watch: Any, inputs: Tensor, targets: Tensor, rows: Any, stop: Tensor, lr: Any) -> Any:
        at, end, first = int(begun.batch), int(stop), None
        while True:
            here = min(end, at + parts[0].capacity)
            before = torch.get_rng_state()
            fill(rows, at, here)
            done, moved = block(begun, watch, inputs, targets, rows, torch.tensor(here), lr, arenas)
            reached, first = int(done.batch), done.first if first is None else first
            if reached < here:
                torch.set_rng_state(before)
                fill(rows, at, reached)
            if here == end or not done.going:
                return done._replace(first=first), moved
            begun, at = done, reached

    return call


def drawing_evaluation(evaluation: Callable[..., Any], drawn: Drawn) -> Callable[..., Any]:
    """`evaluation`, given the numbers of its chunks."""

    def call(weights: Tensor, inputs: Tensor, targets: Tensor, first: Tensor, stop: Tensor, total: Tensor) -> Any:
        while True:
            here = torch.clamp(stop, max=int(first) + drawn.capacity)
            drawn.fill(int(here) - int(first))
            first, total = evaluation(weights, inputs, targets, first, here, total, (drawn.rows,))
            if here == stop:
                return first, total

    return call
