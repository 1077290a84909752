"""The claims of the paper's section on results, each as figures of the published runs."""

from collections.abc import Iterable, Iterator

from claims import constant, fixed
from claims.control import control
from claims.dimension import large_scale, more_variables, scales_up
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
from claims.profiles import outperforms, profiles
from claims.samples import Points, samples
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
    "outperforms",
    "parts",
    "profiles",
    "regularised",
    "shallow",
    "table",
    "today",
    "verdict",
]


def claims(found: Parts, points: Points = (), *, is_published: bool = False) -> Iterator[Claim]:
    """In the paper's order; what does not hang on runs at all is of the published page alone."""
    if is_published:
        yield fixed.dimension(found.tables, found.large)
    yield from control(found.tables)
    if is_published:
        yield fixed.influence()
    yield from samples(points)
    yield from profiles(found.tables)
    yield from more_variables(found)
    yield large_scale(found.tables)
    if is_published:
        yield from fixed.cifar10()
    yield from images(found.images)
    if is_published:
        yield fixed.state_of_the_art()
        yield fixed.convergence()
    yield outperforms(found.tables)
    yield from scales_up(found)


def table(found: Parts, points: Points = (), *, is_published: bool = False) -> str:
    return _rows(claims(found, points, is_published=is_published))


def shallow(found: Parts) -> str:
    """The rows on profiles, for the networks on which most runs learn something."""
    there = on_networks(found.tables, SHALLOW)
    return _rows([*profiles(there), outperforms(there)])


def _rows(judged: Iterable[Claim]) -> str:
    heads = ["| the paper | what we saw | verdict |", "|---|---|---|"]
    return "\n".join([*heads, *(claim.row() for claim in judged)])
