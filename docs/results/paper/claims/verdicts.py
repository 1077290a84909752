"""A claim with its verdict, as a row of the page."""

from collections.abc import Sequence
from dataclasses import dataclass

HOLDS, PARTLY, NOT_SEEN = "holds", "holds in part", "not seen"
ON_SMALL = ("reproduced-small",)
ON_BIG = ("reproduced-big", "reproduced-covtype")


def verdict(checks: Sequence[bool]) -> str:
    """All of the comparisons that a claim makes, at least half of them, or fewer."""
    return HOLDS if all(checks) else PARTLY if sum(checks) * 2 >= len(checks) else NOT_SEEN


@dataclass(frozen=True)
class Claim:
    """A row of the page: what the paper says, what was seen where, and the verdicts, by starts and by pairs."""

    said: str
    seen: str
    where: tuple[str, ...]
    by_start: str
    by_pair: str = ""

    def row(self) -> str:
        same = not self.by_pair or self.by_pair == self.by_start
        judged = (
            f"**{self.by_start}**" if same else f"**{self.by_start}**; by pairs: {self.by_pair}"
        )
        return f"| {self.said} | {self.seen} *Run: {', '.join(self.where)}.* | {judged} |"
