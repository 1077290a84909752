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
    is_complete,
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
    """In the paper's order, as far as there are runs for it; what hangs on no run is of the published page alone."""
    on_tables = is_complete(found.tables)
    if is_published:
        yield fixed.dimension(found.tables, found.large)
    if on_tables:
        yield from control(found.tables)
    if is_published:
        yield fixed.influence()
    yield from samples(points)
    yield from profiles(found.tables)
    if on_tables:
        yield from more_variables(found)
    yield from large_scale(found.tables)
    if is_published:
        yield from fixed.cifar10()
    yield from images(found.images)
    if is_published:
        yield fixed.state_of_the_art()
        yield fixed.convergence()
    yield from outperforms(found.tables)
    yield from scales_up(found)


def table(found: Parts, points: Points = (), *, is_published: bool = False) -> str:
    """For other results than the published ones the presets are not named: nobody knows what made them."""
    return _rows(claims(found, points, is_published=is_published), names_presets=is_published)


def shallow(found: Parts) -> str:
    """The rows on profiles, for the networks on which most runs learn something."""
    there = on_networks(found.tables, SHALLOW)
    return _rows([*profiles(there), *outperforms(there)], names_presets=True)


def _rows(judged: Iterable[Claim], *, names_presets: bool) -> str:
    heads = ["| the paper | what we saw | verdict |", "|---|---|---|"]
    return "\n".join([*heads, *(claim.row(names_presets=names_presets) for claim in judged)])
