"""The claims of the paper's section on results, each as figures of the published runs."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from claims import constant
from claims.control import control
from claims.dimension import more_variables
from claims.images import images
from claims.measures import (
    NAMES,
    PAPER,
    SHALLOW,
    TAUS,
    Figure,
    Parts,
    areas,
    by_size,
    mean,
    of_size,
    on_networks,
    parts,
)
from claims.profiles import profiles
from claims.samples import samples
from claims.tables import regularised, today
from claims.verdicts import Claim, verdict

__all__ = [
    "NAMES",
    "PAPER",
    "TAUS",
    "Figure",
    "Parts",
    "areas",
    "by_size",
    "claims",
    "constant",
    "mean",
    "more_variables",
    "of_size",
    "parts",
    "regularised",
    "shallow",
    "table",
    "today",
    "verdict",
]

DESCENT = Path(__file__).parents[1] / "descent.json"


def claims(found: Parts) -> Iterator[Claim]:
    yield from control(found.tables)
    yield from samples(json.loads(DESCENT.read_text(encoding="utf-8")))
    yield from profiles(found.tables)
    yield from more_variables(found)
    yield from images(found.images)


def table(found: Parts) -> str:
    return _rows(claims(found))


def shallow(found: Parts) -> str:
    """The rows on profiles, for the networks on which most runs learn something."""
    return _rows(profiles(on_networks(found.tables, SHALLOW)))


def _rows(judged: Iterable[Claim]) -> str:
    heads = ["| the paper | what we saw | verdict |", "|---|---|---|"]
    return "\n".join([*heads, *(claim.row() for claim in judged)])
