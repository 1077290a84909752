"""A recording in statements of C++: values by their names, views as forms, all else by a table of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cmalight.compiled.native.writing import LONG, Kept, Value, Writer, kept, literal_of
from cmalight.compiled.recorded.recording import Call, NotWritten, Recording, Ref

# {0}, {1}, ... are the arguments, in the type of the result.
POINTWISE = {
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "reciprocal": "(1 / {0})",
    "sqrt": "root({0})",
    "rsqrt": "(1 / root({0}))",
    "exp": "exponential({0})",
    "expm1": "exponential_1({0})",
    "log": "logarithm({0})",
    "log1p": "logarithm_1({0})",
    "sin": "sine({0})",
    "cos": "cosine({0})",
    "tanh": "tangent({0})",
    "erf": "error_function({0})",
    "abs": "absolute({0})",
    "sigmoid": "(1 / (1 + exponential(-{0})))",
    "relu": "positive({0})",
    "silu": "({0} / (1 + exponential(-{0})))",
    "sigmoid_backward": "({0} * ({1} * (1 - {1})))",
    "tanh_backward": "({0} * (1 - {1} * {1}))",
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "square": "({0} * {0})",
    "clone": "{0}",
    "detach": "{0}",
    "alias": "{0}",
    "lift_fresh": "{0}",
    "_to_copy": "{0}",
    "sign": "(({0} > 0) - ({0} < 0))",
    "logical_and": "({0} && {1})",
    "logical_or": "({0} || {1})",
    "logical_not": "(!{0})",
    "bitwise_not": "(!{0})",
    "bitwise_and": "({0} & {1})",
    "bitwise_or": "({0} | {1})",
}
# In the common type of the arguments.
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
SHAPED = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "detach")
VIEWS = (*SHAPED, "t", "transpose", "permute", "expand", "slice", "select", "split", "split_with_sizes", "unbind")


class Operations(dict[str, Callable[["Writing", Call], Any]]):
    """How operations are written that are more than an expression or a view, by their names."""

    def of(self, *names: str) -> Callable[[Callable[[Writing, Call], Any]], Callable[[Writing, Call], Any]]:
        """Marks the function that writes them."""

        def put(function: Callable[[Writing, Call], Any]) -> Callable[[Writing, Call], Any]:
            self.update(dict.fromkeys(names, function))
            return function

        return put


class Writing:
    """The values so far of one recording, and where they are to be written to."""

    def __init__(
        self,
        recording: Recording,
        inputs: dict[int, Kept],
        outputs: list[tuple[int, Kept]],
        writer: Writer,
        own: Operations,
    ) -> None:
        self.writer, self._own = writer, own
        self._values: dict[int, Value] = dict(inputs)
        self._made = {number: call for call in recording.calls for number in call.outputs}
        self._uses: dict[int, int] = {}
        for call in recording.calls:
            for number in call.inputs:
                self._uses[number] = self._uses.get(number, 0) + 1
        self._places: dict[int, Kept] = {}
        for number, place in outputs:
            self.claim(number, place)
        for call in reversed(recording.calls):
            if call.name == "cat":
                self._claim_parts(call)

    def take(self, call: Call) -> None:
        """Write one call."""
        name = call.name
        try:
            if name in self._own:
                made = self._own[name](self, call)
            elif name in VIEWS and not self._is_scalar(call):
                made = self._view(call)
            elif name in POINTWISE:
                made = self._pointwise(call, POINTWISE[name])
            elif name in COMPARED:
                made = self._compared(call, COMPARED[name])
            elif name in VIEWS:
                made = [constant_like(self.value(call.arguments[0]), t) for t in call.results]
            else:
                raise NotWritten(f"the operation {name}")
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise NotWritten(f"the operation {name}: {error!r}") from error
        made = made if isinstance(made, list) else [made]
        for number, value, result in zip(call.outputs, made, call.results, strict=False):
            if value is not None:
                if value.shape != tuple(result.shape) or value.dtype != result.dtype:
                    raise NotWritten(f"the operation {name} of {value.shape} {value.dtype}")
                self._values[number] = self._settled(number, value)

    def _settled(self, number: int, value: Value) -> Value:
        if isinstance(value, Kept) or (value.scalar is not None and number not in self._places):
            return value
        if self._uses.get(number, 0) > 1 or value.length > LONG or number in self._places:
            return self.writer.keep(value, self._places.get(number))
        return value

    def value(self, argument: Any) -> Value:
        return self._values[argument.number]

    def kept(self, argument: Any) -> Kept:
        """In memory from now on."""
        value = self._values[argument.number]
        if not isinstance(value, Kept):
            value = self._values[argument.number] = self.writer.keep(value)
        return value

    def place_of(self, number: int) -> Kept | None:
        return self._places.get(number)

    def put(self, number: int, place: Kept) -> None:
        """At the end; most outputs are there already."""
        value = self._values[number]
        if not (isinstance(value, Kept) and value.base == place.base and _same_form(value, place)):
            self.writer.keep(value, place)

    def claim(self, number: int, place: Kept) -> None:
        """What makes the value writes it to `place`, if it is not a view of something that cannot be there."""
        call = self._made.get(number)
        if call is None or number in self._places:
            return
        if call.name in VIEWS and len(call.outputs) == 1 and isinstance(call.arguments[0], Ref):
            source = call.arguments[0].number
            form = _before_view(call, place.place, self._made.get(source))
            if form is not None:
                self.claim(source, kept(place.base, form))
        elif call.name not in VIEWS:
            self._places[number] = place

    def _claim_parts(self, call: Call) -> None:
        (number,), (result,) = call.outputs, call.results
        place = self._places.setdefault(number, self.writer.array(result.shape, result.dtype))
        axis = call.arguments[1] if len(call.arguments) > 1 else 0
        for part, form in zip(call.arguments[0], cut(place.place, call, axis, self._shape), strict=True):
            self.claim(part.number, kept(place.base, form))

    def _shape(self, number: int) -> tuple[int, ...]:
        if number in self._made:
            call = self._made[number]
            return tuple(call.results[call.outputs.index(number)].shape)
        return self._values[number].shape

    def _is_scalar(self, call: Call) -> bool:
        return self.value(call.arguments[0]).scalar is not None

    def _view(self, call: Call) -> list[Value]:
        source = self.kept(call.arguments[0])
        rest, options = call.arguments[1:], call.options
        if call.name in ("detach", "alias"):
            return [source]
        operation = torch.Tensor.reshape if call.name in ("view", "_unsafe_view", "reshape") else call.operation

        def seen(place: Tensor) -> list[Tensor]:
            made = operation(place, *rest, **options)
            return list(made) if isinstance(made, list | tuple) else [made]

        forms = seen(source.place)
        if any(form.untyped_storage()._cdata != source.place.untyped_storage()._cdata for form in forms):  # a copy
            source = self.writer.keep(source, self.writer.array(source.shape, source.dtype))
            forms = seen(source.place)
        return [kept(source.base, form) for form in forms]

    def operand(self, argument: Any, dtype: torch.dtype, shape: Any) -> tuple[Callable[[Any], str], int, Value | None]:
        """An argument as an expression of that type, and its length."""
        if isinstance(argument, Ref):
            value = self.value(argument)
            typed = Value(value.shape, dtype, value.as_type(dtype))
            return typed.within(shape), value.length, value
        if isinstance(argument, bool | int | float):
            literal = literal_of(argument, dtype)
            return (lambda _: literal), 0, None
        raise NotWritten(f"an argument {argument!r}")

    def pointwise(self, result: Tensor, template: str, arguments: list[Any], dtype: torch.dtype | None = None) -> Value:
        """A value of the shape and type of `result`; the arguments are taken as `dtype`, or as its type."""
        shape, inner = tuple(result.shape), dtype or result.dtype
        operands = [self.operand(argument, inner, shape) for argument in arguments]
        length = 1 + sum(length for _, length, _ in operands)

        def at(indices: Any) -> str:
            return template.format(*(one(indices) for one, _, _ in operands))

        values = [value for _, _, value in operands]
        alone = all(value is None or value.scalar is not None for value in values)
        return Value(shape, result.dtype, at, length, at(["0"] * len(shape)) if alone else None)

    def _pointwise(self, call: Call, template: str) -> Value:
        (result,) = call.results
        count = template.count("{") and max(int(c) for c in template if c.isdigit() and f"{{{c}}}" in template) + 1
        if call.name == "div" and call.options.get("rounding_mode") is not None:
            raise NotWritten("a division that rounds")
        if call.name == "bitwise_not" and result.dtype is not torch.bool:
            raise NotWritten("the bits of whole numbers")
        if call.name in ("logical_and", "logical_or", "logical_not"):
            return self.pointwise(result, template, list(call.arguments[:count]), torch.bool)
        return self.pointwise(result, template, list(call.arguments[:count]))

    def _compared(self, call: Call, sign: str) -> Value:
        left, right = call.arguments[:2]
        kinds = [self.value(a).dtype for a in (left, right) if isinstance(a, Ref)]
        common = torch.promote_types(kinds[0], kinds[-1])
        if isinstance(right, float) and not common.is_floating_point:
            raise NotWritten("whole numbers compared with others")
        return self.pointwise(call.results[0], f"({{0}} {sign} {{1}})", [left, right], common)


def constant_like(value: Value, result: Tensor) -> Value:
    """One number everywhere, in another shape or type."""
    text = value.as_type(result.dtype)(["0"] * len(value.shape))
    return Value(tuple(result.shape), result.dtype, lambda _: text, 0, text)


def _same_form(one: Kept, other: Kept) -> bool:
    offsets = one.place.storage_offset() == other.place.storage_offset()
    strides = [(a, b) for a, b, size in zip(one.strides, other.strides, one.shape, strict=True) if size > 1]
    return offsets and one.shape == other.shape and all(a == b for a, b in strides)


def cut(whole: Tensor, call: Call, axis: int, shape_of: Callable[[int], tuple[int, ...]]) -> list[Tensor]:
    sizes = [shape_of(part.number)[axis] for part in call.arguments[0]]
    return list(torch.split(whole, sizes, dim=axis))


def _before_view(call: Call, form: Tensor, source: Call | None) -> Tensor | None:
    """The form of what is viewed, if the view of it is to have `form`; None where it has none."""
    if source is None or len(source.results) != 1:
        return None
    shape = source.results[0].shape
    name, rest = call.name, call.arguments[1:]
    if name in ("t", "transpose"):
        return form.t() if name == "t" else form.transpose(*rest)
    if name in SHAPED:
        if not form.is_contiguous():
            return form if form.shape == shape else None
        return form.view(shape)
    return None
