"""The page's other tables: the regulariser, and today's solvers."""

from collections.abc import Sequence

import numpy as np

from claims.measures import NAMES, PAPER, TAUS, areas, by_size, mean
from cmalight import bench

LAMBDAS = {", λ = 0": "0", ", λ = 1e-6": "1e-6", ", λ = 1e-4": "1e-4"}


def regularised(results: bench.Results) -> str:
    """A table: the areas of the paper's solvers at each λ, and whether the order hangs on it."""
    heads = ["λ", *(NAMES[one] for one in PAPER), "CMALight less CMA", "problems", "highest"]
    rows = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 2) + "|---|"]
    firsts, signs = set(), set()
    for suffix, text in LAMBDAS.items():
        solvers = [f"{one}{suffix}" for one in PAPER]
        found = areas(results, 1e-2, solvers=solvers)
        means = [mean(found[one].to_numpy()) for one in solvers]
        first = NAMES[PAPER[int(np.argmax([one.value for one in means]))]]
        less = mean((found[solvers[0]] - found[solvers[1]]).to_numpy())
        firsts.add(first)
        signs.add(less.value > 0)
        cells = [text, *map(str, means), less.signed, str(len(found)), first]
        rows.append(f"| {' | '.join(cells)} |")
    said = [
        f"The highest area is {'that of one solver' if len(firsts) == 1 else 'not always that of one solver'}",
        f"the sign of CMALight less CMA {'is the same' if len(signs) == 1 else 'changes'}",
    ]
    return "\n".join(rows) + f"\n\n{said[0]} at the three values of λ, and\n{said[1]}."


def today(results: bench.Results, solvers: Sequence[str]) -> str:
    """A table: the areas of all solvers, on big and on small data sets."""
    rows = [
        "| solver | big, τ = 0.1 | τ = 0.01 | τ = 0.0001 | small, τ = 0.1 | τ = 0.01 | τ = 0.0001 |",
        "|---" + "|---:" * 6 + "|",
    ]
    columns = [
        areas(traces, tau, solvers=solvers) for traces in by_size(results).values() for tau in TAUS
    ]
    best = [max(column[one].mean() for one in solvers) for column in columns]
    order = sorted(
        solvers, key=lambda one: -float(np.mean([column[one].mean() for column in columns]))
    )
    for solver in order:
        cells = []
        for column, top in zip(columns, best, strict=True):
            text = str(mean(column[solver].to_numpy()))
            cells.append(f"**{text}**" if column[solver].mean() == top else text)
        rows.append(f"| {NAMES.get(solver, solver)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)
