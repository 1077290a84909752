"""How an epoch may end."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """One member per exit of the listings in docs/understand/algorithm.md and docs/understand/controlled.md.

    Attributes:
        line: The line of the listing, the first where there are several.
        last: The last of them.
        text: What happened, in words.
        keeps: Whether the epoch's point, or one that a search found on its line, was kept; so far, of OPEN.
        accepts: Whether the rule was content with the epoch's own end; the report's acceptance rate counts these.
    """

    # Its line of the listing, whether it keeps, whether it accepts, and its text.
    ACCEPTED = (7, True, True, "accepted: the loss fell enough")
    SMALL_DIRECTION_KEPT = (10, True, False, "direction small: point kept, step size shrunk")
    SMALL_DIRECTION_REJECTED = (10, False, False, "direction small: epoch undone, step size shrunk")
    SEARCH_SHORT = (15, True, False, "line search found a small gain: moved, step size shrunk")
    SEARCH_FAILED_KEPT = (15, True, False, "line search found no gain: point kept, step size shrunk")
    SEARCH_FAILED_REJECTED = (15, False, False, "line search found no gain: epoch undone, step size shrunk")
    REJECTED_EARLY = (15, False, False, "rejected before its end: epoch undone, step size shrunk")
    SEARCH_SUCCEEDED = (17, True, False, "line search found a better point: moved")
    SEARCH_REJECTED = (17, False, False, "line search ended above the starting loss: epoch undone, step size shrunk")
    UNCONFIRMED = (22, False, False, "ended above the starting loss: epoch undone, step size shrunk")
    DIVERGED = (5, False, False, "not finite: epoch undone, step size shrunk")
    NO_STEP = (5, False, False, "no step was taken: nothing to judge")
    UNCONTROLLED = (5, True, False, "taken as it came, step size decayed")
    # The tolerant rule's (docs/understand/controlled.md).
    OPEN = (33, True, False, "not judged yet: the next epoch goes on with its window")
    KEPT = (34, True, True, "kept")
    GROWN = ((35, 37), True, True, "kept, and the step size grew")
    STAGNATED = (38, True, True, "kept: no lower loss for some time, step size shrunk")
    REFUSED = (40, False, False, "ended too high: undone, step size shrunk")

    def __init__(self, line: int | tuple[int, int], keeps: bool, accepts: bool, text: str) -> None:
        self.line, self.last = line if isinstance(line, tuple) else (line, line)
        self.keeps = keeps
        self.accepts = accepts
        self.text = text

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line == self.last else f"lines {self.line} to {self.last}"
        return f"{self.text} ({where})"
