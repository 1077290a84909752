"""Errors about data, and words for messages: names that are not known, durations."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class DataError(ValueError):
    """Data that cannot be had as asked for: the message says what is wrong with which file, and what to do."""


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
