"""A claim with its verdict, as a row of the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from claims.measures import Figure

HOLDS, PARTLY, UNDECIDED, NOT_SEEN = "holds", "holds in part", "not decided", "not seen"
ON_SMALL = ("reproduced-small",)
ON_BIG = ("reproduced-big", "reproduced-covtype")
ON_LARGE = ("reproduced-large", "reproduced-large-covtype", "reproduced-larger")


def verdict(margins: Sequence[Figure]) -> str:
    """Of the comparisons that a claim makes, each as a margin in its favour with an interval.

    One is settled where its interval, as it is printed, lies on one side of 0: in favour of the claim, or against it.
    """
    won = sum(round(one.low, 2) > 0 for one in margins)
    lost = sum(round(one.high, 2) < 0 for one in margins)
    if won and won == len(margins):
        return HOLDS
    if won and 2 * won >= len(margins):
        return PARTLY
    return NOT_SEEN if lost else UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A row of the page: what the paper says, what was seen where, and the verdicts, by starts and by pairs."""

    said: str
    seen: str
    where: tuple[str, ...]
    by_start: str
    by_pair: str = ""

    def row(self, *, names_presets: bool) -> str:
        same = not self.by_pair or self.by_pair == self.by_start
        judged = (
            f"**{self.by_start}**" if same else f"**{self.by_start}**; by pairs: {self.by_pair}"
        )
        run = f" *Run: {', '.join(self.where)}.*" if self.where and names_presets else ""
        return f"| {self.said} | {self.seen}{run} | {judged} |"
