"""torch's operations in C++."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cmalight.compiled.native import products
from cmalight.compiled.native.translation import COMPARED, POINTWISE, VIEWS, Operations, Writing
from cmalight.compiled.native.writing import Kept, Value, Writer, constant, kept, literal_of
from cmalight.compiled.recorded.recording import Call, NotWritten, Recording, Ref

_OWN = Operations(products.OPERATIONS)


def is_known(operation: Any) -> bool:
    """Whether it can be written, or is to be taken apart."""
    name = str(operation._schema.name).removeprefix("aten::").removesuffix("_")
    if name in ("var", "var_mean") and operation._overloadname != "correction":
        return False
    return any(name in table for table in (POINTWISE, COMPARED, VIEWS, _OWN))


def write(recording: Recording, inputs: dict[int, Kept], outputs: list[tuple[int, Kept]], writer: Writer) -> None:
    """Statements that compute the outputs, each at its place."""
    writing = Writing(recording, inputs, outputs, writer, _OWN)
    for call in recording.calls:
        writing.take(call)
    for number, place in outputs:
        writing.put(number, place)


@_OWN.of("add", "sub", "rsub")
def _sum(writing: Writing, call: Call) -> Value:
    left, right = call.arguments[:2]
    alpha = call.options.get("alpha", call.arguments[2] if len(call.arguments) > 2 else 1)
    if call.name == "rsub":
        left, right = right, left
    if call.name == "rsub" and alpha != 1:
        raise NotWritten("rsub with a factor")
    sign = "+" if call.name == "add" else "-"
    factor = "" if alpha == 1 else literal_of(alpha, call.results[0].dtype) + " * "
    return writing.pointwise(call.results[0], f"({{0}} {sign} {factor}{{1}})", [left, right])


@_OWN.of("copy")
def _copy(writing: Writing, call: Call) -> Value:
    return writing.pointwise(call.results[0], "{0}", [call.arguments[1]])


@_OWN.of("pow")
def _power(writing: Writing, call: Call) -> Value:
    base, exponent = call.arguments[:2]
    simple = {2: "({0} * {0})", 3: "({0} * {0} * {0})", 1: "{0}", 0.5: "root({0})", -1: "(1 / {0})"}
    if isinstance(exponent, int | float) and exponent in simple:
        return writing.pointwise(call.results[0], simple[exponent], [base])
    return writing.pointwise(call.results[0], "power({0}, {1})", [base, exponent])


@_OWN.of("where")
def _where(writing: Writing, call: Call) -> Value:
    condition, yes, no = call.arguments
    (result,) = call.results
    asked, first, _ = writing.operand(condition, torch.bool, tuple(result.shape))
    chosen = writing.pointwise(result, "\x00 ? {0} : {1}", [yes, no])

    def at(indices: Any) -> str:
        return f"({chosen.at(indices).replace(chr(0), asked(indices), 1)})"

    return Value(chosen.shape, chosen.dtype, at, chosen.length + first)


@_OWN.of("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamped(writing: Writing, call: Call) -> Value:
    low, high = call.options.get("min"), call.options.get("max")
    rest = list(call.arguments[1:])
    if call.name == "clamp_max":
        high = rest[0] if rest else high
    elif rest:
        low, high = rest[0], rest[1] if len(rest) > 1 else high
    if call.name == "hardtanh":
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    text, given = "{0}", [call.arguments[0]]
    for bound, name in ((low, "larger"), (high, "smaller")):
        if bound is not None:
            text = f"{name}({text}, {{{len(given)}}})"
            given.append(bound)
    return writing.pointwise(call.results[0], text, given)


@_OWN.of("threshold_backward")
def _threshold_backward(writing: Writing, call: Call) -> Value:
    gradient, value, threshold = call.arguments
    bound = literal_of(threshold, call.results[0].dtype)
    return writing.pointwise(call.results[0], f"({{1}} <= {bound} ? 0 : {{0}})", [gradient, value])


@_OWN.of("full", "full_like", "new_full", "fill", "zeros", "zeros_like", "new_zeros", "zero", "scalar_tensor")
@_OWN.of("ones", "ones_like", "new_ones", "empty", "empty_like", "empty_permuted", "new_empty")
def _filled(_: Writing, call: Call) -> Value:
    (result,) = call.results
    name = call.name
    if name.startswith(("full", "new_full", "fill")):
        number = call.arguments[2 if name == "new_full" else 1]
    else:
        number = call.arguments[0] if name == "scalar_tensor" else float("ones" in name)
    if isinstance(number, Ref):
        raise NotWritten("an array filled with a tensor")
    return constant(number, result.shape, result.dtype)


@_OWN.of("mse_loss", "l1_loss")
def _loss(writing: Writing, call: Call) -> Value:
    prediction, target = call.arguments[:2]
    reduction = call.arguments[2] if len(call.arguments) > 2 else call.options.get("reduction", 1)
    (result,) = call.results
    sizes = (writing.value(one).shape for one in (prediction, target))
    shape = torch.broadcast_shapes(*sizes)  # type: ignore[no-untyped-call]
    whole = torch.empty(shape, dtype=result.dtype, device="meta")
    template = "absolute({0} - {1})" if call.name == "l1_loss" else "squared({0} - {1})"
    each = writing.pointwise(whole, template, [prediction, target])
    return each if reduction == 0 else _total(writing, each, result, mean=reduction == 1)


@_OWN.of("mse_loss_backward")
def _loss_backward(writing: Writing, call: Call) -> Value:
    gradient, prediction, target, reduction = call.arguments
    (result,) = call.results
    factor = literal_of(2.0 / (result.numel() if reduction == 1 else 1), result.dtype)
    return writing.pointwise(result, f"({factor} * ({{1}} - {{2}}) * {{0}})", [gradient, prediction, target])


def _total(writing: Writing, each: Value, result: Tensor, *, mean: bool) -> Value:
    if not each.shape:
        return each
    form = torch.empty(tuple(1 for _ in each.shape), dtype=result.dtype, device="meta")
    summed = writing.writer.reduced(each, range(len(each.shape)), start="0", join="{a} + {b}", dtype=result.dtype)
    total = kept(summed.base, form.view(()))
    if not mean:
        return total
    divided = literal_of(float(math.prod(each.shape)), result.dtype)
    return Value((), result.dtype, lambda indices: f"({total.at(indices)} / {divided})", 2)


_REDUCTIONS = {
    "sum": ("0", "{a} + {b}"),
    "mean": ("0", "{a} + {b}"),
    "amax": ("-__builtin_inf()", "larger({a}, {b})"),
    "amin": ("__builtin_inf()", "smaller({a}, {b})"),
    "any": ("false", "{a} || {b}"),
    "all": ("true", "{a} && {b}"),
}


@_OWN.of(*_REDUCTIONS)
def _reduced(writing: Writing, call: Call) -> Value:
    value, (result,) = writing.value(call.arguments[0]), call.results
    axes = call.arguments[1] if len(call.arguments) > 1 else call.options.get("dim")
    axes = [axes] if isinstance(axes, int) else axes
    axes = list(axes) if axes else list(range(len(value.shape)))
    axes = [axis % len(value.shape) for axis in axes] if value.shape else []
    if not axes:
        return writing.pointwise(result, "{0}", [call.arguments[0]])
    start, join = _REDUCTIONS[call.name]
    if "inf" in start and not result.dtype.is_floating_point:
        raise NotWritten("the largest of whole numbers")
    place, form = writing.place_of(call.outputs[0]), None
    wide = tuple(1 if a in axes else size for a, size in enumerate(value.shape))
    if place is not None and call.name != "mean":
        form = kept(place.base, place.place.view(wide)) if place.place.is_contiguous() else None
    made = writing.writer.reduced(value, axes, start=start, join=join, dtype=result.dtype, place=form)
    stored = kept(made.base, made.place.view(result.shape))
    if call.name != "mean":
        return stored
    count = math.prod(value.shape[axis] for axis in axes)
    divided = literal_of(float(count), result.dtype)
    return Value(stored.shape, stored.dtype, lambda indices: f"({stored.at(indices)} / {divided})", 2)


@_OWN.of("var_mean", "var")
def _variance(writing: Writing, call: Call) -> list[Value]:
    """In two passes, as it is written in books."""
    value, result = writing.kept(call.arguments[0]), call.results[0]
    axes = call.arguments[1] if len(call.arguments) > 1 else None
    axes = [axis % len(value.shape) for axis in axes] if axes else list(range(len(value.shape)))
    correction = call.options.get("correction", 1)
    count = math.prod(value.shape[axis] for axis in axes)
    sums = writing.writer.reduced(value, axes, start="0", join="{a} + {b}", dtype=value.dtype)
    mean_each = Value(sums.shape, sums.dtype, lambda i: f"({sums.at(i)} / {literal_of(float(count), value.dtype)})")
    mean = writing.writer.keep(mean_each)
    middle = mean.within(value.shape)
    away = Value(value.shape, value.dtype, lambda i: f"squared({value.at(i)} - {middle(i)})")
    squares = writing.writer.reduced(away, axes, start="0", join="{a} + {b}", dtype=value.dtype)
    left = literal_of(float(count - correction), value.dtype)
    spread = writing.writer.keep(Value(squares.shape, squares.dtype, lambda i: f"({squares.at(i)} / {left})"))
    made: list[Value] = [kept(one.base, one.place.view(result.shape)) for one in (spread, mean)]
    return made[: len(call.results)]


@_OWN.of("nll_loss_forward")
def _likelihood(writing: Writing, call: Call) -> list[Value | None]:
    log, target, weight, reduction, _ = call.arguments
    value = writing.value(log)
    if weight is not None or reduction not in (1, 2) or len(value.shape) != 2:
        raise NotWritten("a loss of classes with weights, or of more than one a sample")
    chosen = products.within(writing, target, value.shape[1])
    each = Value(chosen.shape, value.dtype, lambda i: f"(-{value.at((i[0], f'({chosen.at(i)})'))})", value.length + 2)
    return [_total(writing, each, call.results[0], mean=reduction == 1), None]


@_OWN.of("nll_loss_backward")
def _likelihood_backward(writing: Writing, call: Call) -> Value:
    gradient, _, target, weight, reduction, _, _ = call.arguments
    (result,) = call.results
    if weight is not None or reduction not in (1, 2) or result.dim() != 2:
        raise NotWritten("a loss of classes with weights, or of more than one a sample")
    factor = literal_of(-1.0 / (len(result) if reduction == 1 else 1), result.dtype)
    scale, chosen = writing.value(gradient), writing.value(target)
    return Value(
        tuple(result.shape),
        result.dtype,
        lambda i: f"({i[1]} == {chosen.at(i[:1])} ? {factor} * {scale.at(())} : 0)",
        4,
    )
