"""Products of matrices, joined arrays, and rows that are looked up."""

from __future__ import annotations

from typing import Any

from cmalight.compiled.native.translation import Operations, Writing, cut
from cmalight.compiled.native.writing import Kept, Value, constant, kept
from cmalight.compiled.recorded.recording import Call, NotWritten, Ref

OPERATIONS = Operations()


@OPERATIONS.of("mm", "addmm")
def _matrix_product(writing: Writing, call: Call) -> Value:
    *bias, left, right = call.arguments[:3] if call.name == "addmm" else call.arguments[:2]
    if call.options.get("beta", 1) != 1 or call.options.get("alpha", 1) != 1:
        raise NotWritten("addmm with factors")
    result, place = call.results[0], None if bias else writing.place_of(call.outputs[0])
    if place is None or not _is_dense(place):
        place = writing.writer.array(result.shape, result.dtype)
    writing.writer.product(_copied(writing, left), _copied(writing, right), place)
    if not bias:
        return place
    added = writing.value(bias[0]).within(place.shape)
    return Value(place.shape, place.dtype, lambda indices: f"({place.at(indices)} + {added(indices)})", 2)


@OPERATIONS.of("bmm")
def _products(writing: Writing, call: Call) -> Value:
    (result,) = call.results
    factors = [writing.kept(one) for one in call.arguments]
    place = writing.writer.array(result.shape, result.dtype)
    for number in range(len(result)):
        left, right, part = (kept(one.base, one.place[number]) for one in (*factors, place))
        if not (_is_dense(left) and _is_dense(right)):
            raise NotWritten("products of matrices without rows in memory")
        writing.writer.product(left, right, part)
    return place


def _copied(writing: Writing, argument: Any) -> Kept:
    """A matrix whose rows or columns lie together."""
    value = writing.kept(argument)
    if _is_dense(value):
        return value
    return writing.writer.keep(value, writing.writer.array(value.shape, value.dtype))


def _is_dense(value: Kept) -> bool:
    (rows, columns), (down, along) = value.shape, value.strides
    by_rows = along == 1 and (rows == 1 or down >= columns)
    by_columns = down == 1 and (columns == 1 or along >= rows)
    return by_rows or by_columns


@OPERATIONS.of("cat")
def _joined(writing: Writing, call: Call) -> Value:
    place = writing.place_of(call.outputs[0])
    if place is None:
        raise NotWritten("a cat without a place")
    axis = call.arguments[1] if len(call.arguments) > 1 else 0
    forms = cut(place.place, call, axis, lambda number: writing.value(Ref(number)).shape)
    for part, form in zip(call.arguments[0], forms, strict=True):
        writing.put(part.number, kept(place.base, form))
    return place


def within(writing: Writing, argument: Any, count: int) -> Kept:
    """Indices below `count`; others are marked, for the call to end with an error."""
    value = writing.value(argument)
    return writing.writer.keep(
        Value(value.shape, value.dtype, lambda i: f"within({value.at(i)}, {count}, library)", value.length + 1)
    )


@OPERATIONS.of("embedding")
def _embedding(writing: Writing, call: Call) -> Value:
    table = writing.kept(call.arguments[0])
    chosen = within(writing, call.arguments[1], table.shape[0])
    shape = tuple(call.results[0].shape)
    return Value(shape, table.dtype, lambda i: table.at((f"({chosen.at(i[:-1])})", i[-1])), 2)


@OPERATIONS.of("embedding_dense_backward")
def _embedding_backward(writing: Writing, call: Call) -> Value:
    gradient, chosen, _, padding, by_frequency = call.arguments
    if by_frequency:
        raise NotWritten("gradients scaled by frequency")
    (result,) = call.results
    place = writing.place_of(call.outputs[0]) or writing.writer.array(result.shape, result.dtype)
    given, rows = writing.kept(gradient), within(writing, chosen, result.shape[0])
    writing.writer.keep(constant(0.0, result.shape, result.dtype), place)
    indices = [f"i{axis}" for axis in range(len(rows.shape))]
    body = f"const long long r = {rows.at(indices)}; "
    if padding >= 0:
        body += f"if (r == {padding}) continue; "
    body += f"for (long j = 0; j < {result.shape[1]}; j++) {place.at(('r', 'j'))} += {given.at([*indices, 'j'])};"
    for index, size in reversed(list(zip(indices, rows.shape, strict=True))):
        body = f"for (long {index} = 0; {index} < {size}; {index}++) {{ {body} }}"
    writing.writer.add(body)
    return place
