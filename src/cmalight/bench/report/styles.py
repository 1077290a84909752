"""Colours and dashes, the same on the page and in the figures, and told apart by colour-blind readers and in print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cmalight.rules.outcome import Outcome

# Okabe and Ito's colours (without their yellow, which white paper swallows), then Tol's, where more are needed.
_BLUE, _SKY, _VERMILION, _GREEN = "#0072B2", "#56B4E9", "#D55E00", "#009E73"
_ORANGE, _PURPLE, _BLACK, _GREY = "#E69F00", "#CC79A7", "#000000", "#8C8C8C"
_WINE, _OLIVE, _INDIGO, _TEAL = "#882255", "#999933", "#332288", "#44AA99"
_ROSE, _FOREST = "#CC6677", "#117733"
_FIRST = (_GREEN, _ORANGE, _PURPLE, _WINE, _OLIVE, _INDIGO, _TEAL)
_PALETTE = (*_FIRST, _ROSE, _FOREST, _BLACK, _GREY, _VERMILION, _SKY, _BLUE)
_DASHES = ("solid", "dash", "dot", "dashdot")
# Solvers that most reports have look the same in all of them.
_USUAL = {
    "cmalight": (_BLUE, "solid"),
    "cmalight-certified": (_SKY, "solid"),
    "cma": (_VERMILION, "solid"),
    "auto": (_INDIGO, "solid"),
    "ig": (_GREY, "dot"),
    "adam": (_GREEN, "dash"),
    "adamw": (_FOREST, "dash"),
    "nadam": (_OLIVE, "dash"),
    "adagrad": (_ORANGE, "dash"),
    "adadelta": (_PURPLE, "dash"),
    "sgd": (_BLACK, "dot"),
    "sgd-momentum": (_ROSE, "dot"),
    "lbfgs": (_WINE, "dashdot"),
}


@dataclass(frozen=True)
class Style:
    colour: str
    dash: str


def styles(solvers: Sequence[str]) -> dict[str, Style]:
    """One style per solver: no two the same among the first 56, no colour shared while another is unused."""
    pairs = [(colour, dash) for dash in _DASHES for colour in _PALETTE]
    taken = {_USUAL[name] for name in solvers if name in _USUAL}
    free = [pair for pair in pairs if pair not in taken]
    uses = Counter(colour for colour, _ in taken)
    found: dict[str, Style] = {}
    for name in solvers:
        pair = _USUAL.get(name)
        if pair is None:
            pair = min(free, key=lambda one: uses[one[0]])
            free.remove(pair)
            free = free or list(pairs)
            uses[pair[0]] += 1
        found[name] = Style(*pair)
    return found


UNKNOWN = "unknown"
# What an epoch led to, from quiet to loud: the more was undone, the louder.
_QUIET = {
    "uncontrolled": "#EEEEEE",
    "no_step": "#FFFFFF",
    "open": "#E5F5E0",
    "accepted": "#C6DBEF",
    "kept": "#C7E9C0",
    "grown": "#9ECAE1",
    "search_succeeded": "#6BAED6",
    "search_short": "#2171B5",
}
_LOUD = {
    "small_direction_kept": "#FEE391",
    "search_failed_kept": "#FEC44F",
    "stagnated": "#FFF7BC",
    "small_direction_rejected": "#FC8D59",
    "search_failed_rejected": "#E34A33",
    "search_rejected": "#B30000",
    "unconfirmed": "#FDBB84",
    "refused": "#EF6548",
    "rejected_early": "#7A0177",
    "diverged": "#000000",
}


def _others(keeps: bool, colour: str) -> dict[str, str]:
    """Outcomes that nobody has chosen a colour for."""
    names = [one.name.lower() for one in Outcome if one.keeps is keeps]
    return {name: colour for name in names if name not in {**_QUIET, **_LOUD}}


# What a file calls by a name that is no outcome is unknown, and louder than those that keep the epoch's point, for
# which it must not be taken.
OUTCOMES: dict[str, str] = {
    **_QUIET,
    **_others(True, "#DADAEB"),
    UNKNOWN: "#BDBDBD",
    **_LOUD,
    **_others(False, "#67000D"),
}
