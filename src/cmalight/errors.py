"""Errors about data, checks of arguments, and words for messages: unknown names, durations."""

from __future__ import annotations

import contextlib
import difflib
import math
import numbers
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import Any

_NOT_THE_USERS = ("cmalight", "torch", "contextlib")  # modules to which a warning does not point
_LARGEST = 2**63 - 1  # the largest integer of torch and NumPy


class DataError(ValueError):
    """Data that cannot be used; the message says what is wrong with which file, and what to do."""


def invalid(name: str, value: object, expected: str) -> ValueError:
    """Return the error for an argument that is out of its range, worded like torch's."""
    return ValueError(f"Invalid {name} value: {value!r}; expected {expected}")


def is_number(value: object) -> bool:
    """Return whether the value is a finite real number; a bool is not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return bool(abs(value) <= sys.float_info.max)  # type: ignore[operator]


def check_whole(name: str, value: Any, *, least: int = 0, most: int = _LARGEST) -> None:
    """Raise ValueError unless the value is a whole number in the range; a bool is not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        bounds = f">= {least}" if most == _LARGEST else f"from {least} to {most}"
        raise invalid(name, value, f"a whole number {bounds}")


def check_seed(name: str, value: Any) -> None:
    """Raise ValueError unless NumPy's legacy generator takes the value as a seed."""
    check_whole(name, value, most=2**32 - 1)


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless the value is a finite number above 0."""
    if not (is_number(value) and value > 0):
        raise invalid(name, value, "a positive number")


def check_least(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless the value is a finite number >= `least`."""
    if not (is_number(value) and value >= least):
        raise invalid(name, value, f"a number >= {least}")


def check_fraction(name: str, value: Any) -> None:
    """Raise ValueError unless the value lies between 0 and 1, both excluded."""
    if not (is_number(value) and 0 < value < 1):
        raise invalid(name, value, "a number between 0 and 1, both excluded")


def check_unit_interval(name: str, value: Any) -> None:
    """Raise ValueError unless the value lies between 0 and 1, both included."""
    if not (is_number(value) and 0 <= value <= 1):
        raise invalid(name, value, "a number from 0 to 1")


def check_part(name: str, value: Any) -> None:
    """Raise ValueError unless the value lies between 0, included, and 1, excluded."""
    if not (is_number(value) and 0 <= value < 1):
        raise invalid(name, value, "a number >= 0 and less than 1")


def check_flag(name: str, value: object) -> None:
    """Raise ValueError unless the value is True or False."""
    if not isinstance(value, bool):
        raise invalid(name, value, "True or False")


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raise ValueError unless the value is one of the choices; True does not count as 1."""
    if isinstance(value, bool | list | dict) or value not in choices:
        raise invalid(name, value, f"one of {', '.join(map(str, choices))}")


@contextlib.contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Turn a failed import of an optional library into an error that says what to install.

    Args:
        what: What needs the library, in words.
        extra: The extra of this package that brings it.
    """
    try:
        yield
    except ImportError as missing:
        raise ImportError(f'{what}: pip install "cmalight[{extra}]"') from missing


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return `Unknown KIND 'NAME'; did you mean ...? known are ...`."""
    known = list(known)
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"Unknown {kind} {name!r}; {hint}known are {', '.join(known)}"


def duration(seconds: float | None) -> str:
    """Return `1:05`, `2:03:04` or `3 d 04 h`, rounded up; `unknown` for None, NaN and infinity."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        days, hours = divmod(math.ceil(seconds / 3600), 24)
        return f"{days} d {hours:02} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def warn(text: str) -> None:
    """Warn at the user's line, which is the first one outside of this package and torch."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
