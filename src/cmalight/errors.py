"""Errors about data, checks of arguments, and words for messages: names that are not known, durations."""

from __future__ import annotations

import contextlib
import difflib
import math
import numbers
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

LARGEST = 2**63 - 1  # that torch and NumPy count to


class DataError(ValueError):
    """Data that cannot be had as asked for: the message says what is wrong with which file, and what to do."""


def invalid(name: str, value: object, expected: str) -> ValueError:
    """The error for an argument that is out of its range, in the words of torch's own."""
    return ValueError(f"Invalid {name} value: {value!r}; expected {expected}")


def is_number(value: object) -> bool:
    """Whether it is finite; flags are no numbers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return bool(abs(value) <= sys.float_info.max)  # type: ignore[operator]


def check_whole(name: str, value: Any, *, least: int = 0, most: int = LARGEST) -> None:
    """Refuses what is no whole number in that range; flags are none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        bounds = f">= {least}" if most == LARGEST else f"from {least} to {most}"
        raise invalid(name, value, f"a whole number {bounds}")


def check_seed(name: str, value: Any) -> None:
    """Refuses what NumPy's frozen generator does not take for one."""
    check_whole(name, value, most=2**32 - 1)


def check_positive(name: str, value: Any) -> None:
    """Refuses what is no finite number above 0."""
    if not (is_number(value) and value > 0):
        raise invalid(name, value, "a positive number")


def check_least(name: str, value: Any, least: int) -> None:
    """Refuses what is no finite number from `least` on."""
    if not (is_number(value) and value >= least):
        raise invalid(name, value, f"a number >= {least}")


def check_fraction(name: str, value: Any) -> None:
    """Refuses what does not lie between 0 and 1."""
    if not (is_number(value) and 0 < value < 1):
        raise invalid(name, value, "a number between 0 and 1, both excluded")


def check_share(name: str, value: Any) -> None:
    """Refuses what does not lie from 0 to 1, both included."""
    if not (is_number(value) and 0 <= value <= 1):
        raise invalid(name, value, "a number from 0 to 1")


def check_part(name: str, value: Any) -> None:
    """Refuses what is no share that leaves something."""
    if not (is_number(value) and 0 <= value < 1):
        raise invalid(name, value, "a number >= 0 and less than 1")


def check_flag(name: str, value: object) -> None:
    """Refuses what is not a flag."""
    if not isinstance(value, bool):
        raise invalid(name, value, "True or False")


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Refuses what is not one of the choices; a flag is no number, and a list can be none of them."""
    if isinstance(value, bool | list | dict) or value not in choices:
        raise invalid(name, value, f"one of {', '.join(map(str, choices))}")


@contextlib.contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """For imports of an optional library, which say what to install where they fail.

    Args:
        what: needs it, in words.
        extra: of this package that brings it.
    """
    try:
        yield
    except ImportError as missing:
        raise ImportError(f'{what}: pip install "cmalight[{extra}]"') from missing


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """`Unknown KIND 'NAME'; did you mean ...? known are ...`."""
    known = list(known)
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"Unknown {kind} {name!r}; {hint}known are {', '.join(known)}"


def duration(seconds: float | None) -> str:
    """`1:05`, `2:03:04` or `3 d 04 h`; `unknown` where it is.

    Args:
        seconds: None, or not finite, where it is not known.
    """
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
