"""Messages for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """`Unknown KIND 'NAME'; did you mean ...? known are ...`."""
    known = list(known)
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"Unknown {kind} {name!r}; {hint}known are {', '.join(known)}"
