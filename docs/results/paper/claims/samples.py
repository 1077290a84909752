"""What the paper says of the anti-gradients of single samples: figures of descent.py, not of the runs."""

from collections.abc import Iterator, Sequence
from typing import Any

from claims.measures import mean
from claims.verdicts import Claim, verdict

Points = Sequence[dict[str, Any]]


def samples(points: Points) -> Iterator[Claim]:
    if not points:
        return
    by_kept = {
        kept: [one for one in points if one["kept"] == kept]
        for kept in sorted({one["kept"] for one in points})
    }
    pairs = len({(one["dataset"], one["network"]) for one in points})
    where = f"({pairs} pairs of data set and network, one start; a kept epoch is one that CMALight did not undo)"
    descent = {kept: mean([one["descent"] for one in found]) for kept, found in by_kept.items()}
    below = [sum(one["descent"] <= 0.5 for one in found) for found in by_kept.values()]
    yield Claim(
        "The anti-gradients of single samples are often a descent direction even for f.",
        f"Of all samples, {_listed(descent)} {where}. A coin gives 0.5, and the comparisons are with that; of the "
        f"pairs {', '.join(map(str, below))} are at or below it.",
        ("descent.py",),
        verdict([one.less(0.5) for one in descent.values()]),
    )
    worse = {kept: mean([one["worse"] for one in found]) for kept, found in by_kept.items()}
    yield Claim(
        "So the points of the first inner iterations have worse values of f.",
        f"The share of epochs in which f has a higher mean over the points of the first half than over those of the "
        f"second: {_listed(worse)} {where}. The comparisons are with 0.5.",
        ("descent.py",),
        verdict([one.less(0.5) for one in worse.values()]),
    )


def _listed(found: dict[int, object]) -> str:
    return ", ".join(
        f"{figure} {'at the start' if not kept else f'after {kept} kept epoch' + 's' * (kept > 1)}"
        for kept, figure in found.items()
    )
