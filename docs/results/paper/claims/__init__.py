"""The claims of the paper's section on results, each as figures of the published runs."""

import json
from collections.abc import Iterator
from pathlib import Path

from claims.control import control, descent
from claims.images import images
from claims.measures import NAMES, PAPER, TAUS, Parts, areas, by_size, of_size, parts
from claims.profiles import large, profiles
from claims.tables import regularised, today
from claims.verdicts import Claim, verdict

__all__ = [
    "NAMES",
    "PAPER",
    "TAUS",
    "Parts",
    "areas",
    "by_size",
    "claims",
    "of_size",
    "parts",
    "regularised",
    "table",
    "today",
    "verdict",
]

DESCENT = Path(__file__).parents[1] / "descent.json"


def claims(found: Parts) -> Iterator[Claim]:
    yield from control(found.tables)
    yield descent(json.loads(DESCENT.read_text(encoding="utf-8")))
    yield from profiles(found.tables)
    yield from large(found.large)
    yield from images(found.images)


def table(found: Parts) -> str:
    rows = ["| the paper | what we saw | verdict |", "|---|---|---|"]
    return "\n".join([*rows, *(claim.row() for claim in claims(found))])
