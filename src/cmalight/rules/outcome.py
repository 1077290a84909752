"""How a window may end."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """One member per exit of the listings in docs/understand/algorithm.md and docs/understand/watchdog.md.

    Attributes:
        line: The line of the listing that decided.
        keeps: Whether the weights moved: to the end of the window, or to a point that a line search found.
        accepts: Whether the rule accepted the end of the window itself; acceptance rates count these.
        text: What happened, in words.
    """

    ACCEPTED = (7, True, True, "accepted: the loss fell enough")
    SMALL_DIRECTION_KEPT = (10, True, False, "direction small: point kept, learning rate lowered")
    SMALL_DIRECTION_REJECTED = (10, False, False, "direction small: epoch undone, learning rate lowered")
    SEARCH_SHORT = (15, True, False, "line search found a small gain: moved, learning rate lowered")
    SEARCH_FAILED_KEPT = (15, True, False, "line search found no gain: point kept, learning rate lowered")
    SEARCH_FAILED_REJECTED = (15, False, False, "line search found no gain: epoch undone, learning rate lowered")
    SEARCH_SUCCEEDED = (17, True, False, "line search found a better point: moved")
    SEARCH_REJECTED = (17, False, False, "line search ended above the first loss: epoch undone, learning rate lowered")
    UNCONFIRMED = (22, False, False, "ended above the first loss: epoch undone, learning rate lowered")
    DIVERGED = (5, False, False, "undone: NaN or infinity")
    NO_STEP = (5, False, False, "no step was taken: nothing to judge")
    UNCONTROLLED = (5, True, False, "kept without a test, learning rate decayed")
    KEPT = (7, True, True, "kept")
    ALARM = (6, True, False, "alarm: the next window settles it")
    DISMISSED = (9, True, False, "kept: alarm dismissed by f")
    RISEN = (11, True, False, "kept: the loss has risen, but not because of the learning rate")
    UNDONE = (10, False, False, "undone: the loss rose")

    def __init__(self, line: int, keeps: bool, accepts: bool, text: str) -> None:
        self.line = line
        self.keeps = keeps
        self.accepts = accepts
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (line {self.line})"
