"""Loops in C++ over arrays of fixed shapes: values that wait to be computed, and the statements that compute them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cmalight.compiled.recorded.recording import NotWritten

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "long long",
    torch.int32: "int",
    torch.bool: "bool",
}
# An expression of more operations than this is computed and kept, though it is used once.
LONG = 30
# A sum over so many float numbers is taken in double precision.
_MANY = 4096
_ALIGNED = 64

Indices = Sequence[str]
At = Callable[[Indices], str]
_ACCESS = re.compile(r"⟦([^⟧]*)⟧")


@dataclass(frozen=True)
class Value:
    """An expression for every index, which costs nothing until it is kept."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    at: At
    length: int = 1  # operations
    scalar: str | None = None  # the literal, of a value that is one number everywhere

    def within(self, shape: Sequence[int]) -> At:
        """As part of a larger shape, by torch's rules for broadcasting."""
        skipped, own = len(shape) - len(self.shape), self.shape
        return lambda indices: self.at(
            ["0" if size == 1 else i for size, i in zip(own, indices[skipped:], strict=True)]
        )

    def as_type(self, dtype: torch.dtype) -> At:
        if dtype == self.dtype:
            return self.at
        if dtype is torch.bool:
            return lambda indices: f"({self.at(indices)} != 0)"
        return lambda indices: f"({TYPES[dtype]})({self.at(indices)})"


@dataclass(frozen=True)
class Kept(Value):
    """In memory: `base` is the name of an array, `form` has its shape and strides, on no device."""

    base: str = ""
    form: Tensor | None = None

    @property
    def strides(self) -> tuple[int, ...]:
        return self.place.stride()

    @property
    def place(self) -> Tensor:
        if self.form is None:
            raise TypeError("a kept value has a form")
        return self.form

    def pointer(self) -> str:
        """As a token, which becomes a parameter of the function that the statement is put into."""
        return f"⟦{self.base}|{self.place.storage_offset()}|{TYPES[self.dtype]}⟧"


def kept(base: str, form: Tensor) -> Kept:
    """The array `base`, seen with the strides of `form`."""
    if form.dtype not in TYPES:
        raise NotWritten(f"numbers of the type {form.dtype}")
    token = f"⟦{base}|{form.storage_offset()}|{TYPES[form.dtype]}⟧"

    def at(indices: Indices) -> str:
        return f"{token}[{linear(indices, form.stride(), form.shape)}]"

    return Kept(tuple(form.shape), form.dtype, at, 1, None, base, form)


def constant(number: bool | float, shape: Sequence[int], dtype: torch.dtype) -> Value:
    """One number everywhere."""
    literal = literal_of(number, dtype)
    return Value(tuple(shape), dtype, lambda _: literal, 0, literal)


def literal_of(number: bool | float, dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "true" if number else "false"
    if not dtype.is_floating_point:
        return f"{int(number)}LL"
    value, suffix = float(number), "f" if dtype is torch.float32 else ""
    if value != value:
        return f'(({TYPES[dtype]})__builtin_nan{suffix}(""))'
    if value in (float("inf"), float("-inf")):
        return f"({'-' if value < 0 else ''}__builtin_inf{suffix}())"
    return f"({value!r}{suffix})" if "." in repr(value) or "e" in repr(value) else f"({value!r}.{suffix})"


def linear(indices: Indices, strides: Sequence[int], shape: Sequence[int]) -> str:
    """The place in memory of an element."""
    terms = [
        i if stride == 1 else f"{i}*{stride}"
        for i, stride, size in zip(indices, strides, shape, strict=True)
        if stride and size > 1 and i != "0"
    ]
    return " + ".join(terms) or "0"


class Writer:
    """Collects statements; each is a function of its arrays, and functions that read alike are written once."""

    def __init__(self) -> None:
        self._statements: list[str] = []
        self._sizes: dict[str, int] = {}

    def array(self, shape: Sequence[int], dtype: torch.dtype) -> Kept:
        """A new one in the workspace."""
        if dtype not in TYPES:
            raise NotWritten(f"numbers of the type {dtype}")
        form = torch.empty(tuple(shape), dtype=dtype, device="meta")
        base = f"b{len(self._sizes)}"
        self._sizes[base] = form.numel() * form.element_size()
        return kept(base, form)

    def keep(self, value: Value, place: Kept | None = None) -> Kept:
        """In memory, at `place` if given."""
        if place is None:
            if isinstance(value, Kept):
                return value
            place = self.array(value.shape, value.dtype)
        indices = _names(value.shape)
        self._add(_loops(value.shape, indices, f"{place.at(indices)} = {value.at(indices)};"))
        return place

    def reduced(
        self, value: Value, axes: Sequence[int], *, start: str, join: str, dtype: torch.dtype, place: Kept | None = None
    ) -> Kept:
        """Over `axes`, each left with a size of 1; `join` is an expression of the result `a` and an element `b`."""
        axes = sorted(axis % len(value.shape) for axis in axes)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
        result = self.array(shape, dtype) if place is None else place
        names = _names(value.shape)
        indices = ["0" if size == 1 else name for name, size in zip(names, value.shape, strict=True)]
        target = result.at(["0" if axis in axes else i for axis, i in enumerate(indices)])
        element = value.as_type(dtype)(indices)
        outer = [a for a, size in enumerate(value.shape) if a not in axes and size > 1]
        inner = [a for a in axes if value.shape[a] > 1]
        rows = bool(outer) and bool(inner) and outer[-1] > inner[-1]
        last = outer.pop() if rows else None

        def around(which: Sequence[int], body: str) -> str:
            for axis in reversed(which):
                body = (
                    f"for (long {names[axis]} = 0; {names[axis]} < {value.shape[axis]}; {names[axis]}++) {{ {body} }}"
                )
            return body

        if last is not None:  # the last axis stays: rows are joined to rows
            step = join.format(a=target, b=element)
            body = f"{_simd()}{around([last], f'{target} = {start};')} "
            body += around(inner, f"{_simd()}{around([last], f'{target} = {step};')}")
        else:
            count = 1
            for axis in inner:
                count *= value.shape[axis]
            wide = "double" if dtype is torch.float32 and count > _MANY else TYPES[dtype]
            step = join.format(a="sum", b=f"({wide})({element})")
            simd = f"{_simd('reduction(+:sum)')}" if join == "{a} + {b}" and inner else ""
            loop = around(inner[:-1], simd + around(inner[-1:], f"sum = {step};"))
            body = f"{wide} sum = {start}; {loop} {target} = sum;"
        self._add(around(outer, body))
        return result

    def product(self, left: Kept, right: Kept, place: Kept) -> None:
        """The matrix product."""
        (rows, inner), columns = left.shape, right.shape[1]
        strides = ", ".join(f"{a}, {b}" for a, b in (one.strides for one in (left, right, place)))
        kind = TYPES[place.dtype]
        if inner == 1 or rows == 1 or columns == 1:
            self._add(_plain_product(left, right, place))
            return
        self._add(
            f"product<{kind}, {rows}, {columns}, {inner}, {strides}>({left.pointer()}, {right.pointer()}, "
            f"{place.pointer()}, library);"
        )

    def add(self, body: str) -> None:
        """A statement of one's own."""
        self._add(body)

    def _add(self, body: str) -> None:
        self._statements.append(body)

    def text(self, name: str, functions: dict[str, str], *, parameters: str, offset: int) -> tuple[str, int]:
        """The function `name` with all statements, and the bytes of the workspace that it and what is before need.

        Args:
            name: of the function.
            functions: by their bodies, the names of those that were written before; new ones are added.
            parameters: of the function; the bases that are not in the workspace are among them.
            offset: where in the workspace its arrays may begin.
        """
        calls = []
        for body in self._statements:
            tokens = list(dict.fromkeys(_ACCESS.findall(body)))
            own = {token: f"p{number}" for number, token in enumerate(tokens)}
            text = _ACCESS.sub(lambda found, own=own: own[found.group(1)], body)  # type: ignore[misc]
            kinds = ", ".join(f"{token.split('|')[2]}* __restrict {own[token]}" for token in tokens)
            function = f"({', '.join(part for part in (kinds, 'const Library& library') if part)}) {{ {text} }}"
            called = functions.setdefault(function, f"f{len(functions)}")
            given = [f"({kind}*){base} + {begin}" for base, begin, kind in (token.split("|") for token in tokens)]
            calls.append(f"  {called}({', '.join([*given, 'library'])});")
        places, end = self._placed(offset)
        arrays = [f"  char* const {base} = work + {place};" for base, place in places.items()]
        return f"static void {name}({parameters}) {{\n" + "\n".join([*arrays, *calls]) + "\n}\n", end

    def _placed(self, offset: int) -> tuple[dict[str, int], int]:
        """Arrays whose last use is behind give their room to later ones."""
        uses: dict[str, list[int]] = {}
        for number, body in enumerate(self._statements):
            for token in _ACCESS.findall(body):
                base = token.split("|")[0]
                if base in self._sizes:
                    uses.setdefault(base, []).append(number)
        places: dict[str, int] = {}
        held: list[tuple[int, int, int]] = []  # begin, end, last use
        end = offset
        for base, numbers in sorted(uses.items(), key=lambda item: item[1][0]):
            size = -(-self._sizes[base] // _ALIGNED) * _ALIGNED
            held = sorted(one for one in held if one[2] >= numbers[0])
            begin = offset
            for other, until, _ in held:
                if begin + size <= other:
                    break
                begin = max(begin, until)
            places[base] = begin
            held.append((begin, begin + size, numbers[-1]))
            end = max(end, begin + size)
        return places, end


def _plain_product(left: Kept, right: Kept, place: Kept) -> str:
    """Of matrices one of which is a row or a column: a loop, in the order in which memory is read."""
    (rows, inner), columns = left.shape, right.shape[1]
    if inner == 1:
        return _loops(place.shape, ("i", "j"), f"{place.at('ij')} = {left.at('i0')} * {right.at('0j')};")
    one, many, length = ("0", "j", columns) if rows == 1 else ("i", "0", rows)
    index = many if rows == 1 else one
    target, term = place.at((one, many)), f"{left.at((one, 'k'))} * {right.at(('k', many))}"
    matrix = right if rows == 1 else left
    by_columns = matrix.strides[1 if rows == 1 else 0] == 1 and length > 1
    if by_columns:
        return (
            f"{_simd()}for (long {index} = 0; {index} < {length}; {index}++) {target} = 0; "
            f"for (long k = 0; k < {inner}; k++) {{ {_simd()}for (long {index} = 0; {index} < {length}; {index}++) "
            f"{target} += {term}; }}"
        )
    kind = TYPES[place.dtype]
    return (
        f"for (long {index} = 0; {index} < {length}; {index}++) {{ {kind} sum = 0; "
        f"{_simd('reduction(+:sum)')}for (long k = 0; k < {inner}; k++) sum += {term}; {target} = sum; }}"
    )


def _names(shape: Sequence[int]) -> list[str]:
    return [f"i{axis}" for axis in range(len(shape))]


def _loops(shape: Sequence[int], names: Sequence[str], body: str) -> str:
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    for axis in axes[::-1]:
        simd = _simd() if axis == axes[-1] else ""
        body = f"{simd}for (long {names[axis]} = 0; {names[axis]} < {shape[axis]}; {names[axis]}++) {{ {body} }}"
    unused = [f"const long {name} = 0; (void){name};" for name, size in zip(names, shape, strict=True) if size == 1]
    return " ".join([*unused, body])


def _simd(clause: str = "") -> str:
    return f"\n#pragma omp simd {clause}\n"
