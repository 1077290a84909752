"""Errors about data, and messages for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """Data that cannot be had as asked for: the message says what is wrong with which file, and what to do."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """`Unknown KIND 'NAME'; did you mean ...? known are ...`."""
    known = list(known)
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"Unknown {kind} {name!r}; {hint}known are {', '.join(known)}"
