"""Whether plain data from a file has the form that is expected, and where it has not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Form = Callable[[str, Any], None]  # raises MisfitError for a value at that place


class MisfitError(ValueError):
    """A value is not what is expected where it stands."""

    def __init__(self, where: str, found: object, expected: str) -> None:
        super().__init__(f"{where} is {_shown(found)}; expected {expected}")


@dataclass(frozen=True)
class One:
    """A value of one of these types, exactly."""

    kinds: tuple[type, ...]
    expected: str

    def __call__(self, where: str, value: object) -> None:
        if type(value) not in self.kinds:
            raise MisfitError(where, value, self.expected)


@dataclass(frozen=True)
class Number:
    """A number of at least that; NaN and infinities only where `finite` is False."""

    least: float = -math.inf
    whole: bool = False
    finite: bool = True

    def __call__(self, where: str, value: object) -> None:
        expected = f"a {'whole ' * self.whole}{'finite ' * self.finite}number"
        if type(value) not in ((int,) if self.whole else (int, float)):
            raise MisfitError(where, value, expected)
        if not (self.least <= value < math.inf if self.finite else True):  # type: ignore[operator]
            raise MisfitError(where, value, f"{expected} >= {self.least:g}")


@dataclass(frozen=True)
class Maybe:
    """None, or that."""

    form: Form

    def __call__(self, where: str, value: object) -> None:
        if value is not None:
            self.form(where, value)


@dataclass(frozen=True)
class ListOf:
    """A list, or a tuple, of any length."""

    form: Form

    def __call__(self, where: str, value: object) -> None:
        if not isinstance(value, list | tuple):
            raise MisfitError(where, value, "a list")
        for number, member in enumerate(value):
            self.form(f"{where}[{number}]", member)


@dataclass(frozen=True)
class DictOf:
    """A dict with any keys of that type."""

    key: type
    form: Form

    def __call__(self, where: str, value: object) -> None:
        _require_dict(where, value, self.key)
        for key, member in value.items():  # type: ignore[attr-defined]
            self.form(f"{where}[{_shown(key)}]", member)


@dataclass(frozen=True)
class Record:
    """A dict with exactly these keys."""

    forms: Mapping[str, Form]

    def __call__(self, where: str, value: object) -> None:
        _require_dict(where, value, str)
        if value.keys() != self.forms.keys():  # type: ignore[attr-defined]
            raise MisfitError(where, sorted(value), f"the keys {sorted(self.forms)}")  # type: ignore[call-overload]
        for key, form in self.forms.items():
            form(f"{where}.{key}", value[key])  # type: ignore[index]


@dataclass(frozen=True)
class Tagged:
    """A dict whose form depends on the text at one key."""

    key: str
    forms: Mapping[str, Form]

    def __call__(self, where: str, value: object) -> None:
        _require_dict(where, value, str)
        tag = value.get(self.key)  # type: ignore[attr-defined]
        if not isinstance(tag, str) or tag not in self.forms:
            raise MisfitError(f"{where}.{self.key}", tag, " or ".join(self.forms))
        self.forms[tag](where, value)


def anything(_where: str, _value: object) -> None:
    """Fits always."""


TEXT = One((str,), "text")
FLAG = One((bool,), "true or false")


def _require_dict(where: str, value: object, key: type) -> None:
    if not isinstance(value, dict) or any(type(name) is not key for name in value):
        raise MisfitError(where, value, f"a dict with keys of the type {key.__name__}")


def _shown(value: object) -> str:
    """Short, and of a tensor only its kind: a file can hold anything."""
    if isinstance(value, str | float | bool | None):
        return repr(value)[:60]
    if type(value) is int and abs(value) < 1 << 64:
        return repr(value)
    if isinstance(value, list) and all(isinstance(member, str) for member in value):
        return repr(value)[:200]
    return f"a {type(value).__name__}"
