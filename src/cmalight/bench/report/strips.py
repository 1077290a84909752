"""What the control did, epoch by epoch: step sizes and outcomes as coloured strips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmalight.bench.analysis.costs import slices_by_key
from cmalight.bench.analysis.summaries import NO_CONTROL
from cmalight.bench.report.packing import drawn, packed
from cmalight.bench.report.styles import OUTCOMES, UNKNOWN
from cmalight.rules.outcome import Outcome

if TYPE_CHECKING:
    import pandas

_MOST_CELLS, _MOST_CELLS_OF_A_RUN = 120_000, 400
_CODES = {name: place for place, name in enumerate(OUTCOMES)}
_UNCONTROLLED = [_CODES[name] for name in (UNKNOWN, *NO_CONTROL)]


def outcome_legend() -> list[dict[str, Any]]:
    """By code: name, colour, and what the listing does there."""
    about = {one.name.lower(): str(one) for one in Outcome}
    return [{"name": name, "colour": colour, "text": about.get(name, name)} for name, colour in OUTCOMES.items()]


def strips(runs: pandas.DataFrame, epochs: pandas.DataFrame, *, most_cells: int = _MOST_CELLS_OF_A_RUN) -> list[Any]:
    """(row of `runs`, codes, step sizes, epochs) of every run that has a control, in the order of `runs`.

    Where there are more epochs than cells, a cell has the loudest outcome of its epochs, and their last step size.
    """
    ordered = epochs.sort_values(["key", "epoch"], kind="stable")
    slices = slices_by_key(ordered)
    names = ordered["outcome"].astype("object")
    codes = names.map(_CODES).fillna(_CODES[UNKNOWN]).to_numpy(dtype=np.int64)
    steps = ordered["lr"].to_numpy(dtype=np.float64)
    found = []
    for row, key in enumerate(runs["key"]):
        place = slices.get(key)
        if place is None or np.isin(codes[place], _UNCONTROLLED).all():
            continue
        count = place.stop - place.start
        ends = np.unique(np.linspace(0, count, min(count, most_cells) + 1).astype(np.int64)[1:])
        begins = np.r_[0, ends[:-1]]
        loudest = np.maximum.reduceat(codes[place], begins)
        found.append((row, loudest, steps[place][ends - 1], count))
    return found


def strip_data(
    runs: pandas.DataFrame, epochs: pandas.DataFrame, families: dict[str, int], solvers: list[str]
) -> dict[str, Any]:
    """The strips of the first seeds, as many as there is room for."""
    numbers = {name: place for place, name in enumerate(solvers)}
    seeds = runs["seed"].to_numpy()
    everything = sorted(strips(runs, epochs), key=lambda strip: seeds[strip[0]])
    room = np.cumsum([len(strip[1]) for strip in everything]) <= _MOST_CELLS
    kept = [strip for strip, fits in zip(everything, room, strict=True) if fits]
    rows = [strip[0] for strip in kept]
    of_row = [(str(runs["family"].iat[row]), str(runs["label"].iat[row])) for row in rows]
    return {
        "family": packed([families[family] for family, _ in of_row]),
        "solver": packed([numbers[label] for _, label in of_row]),
        "seed": [int(seeds[row]) for row in rows],
        "epochs": packed([strip[3] for strip in kept]),
        "first": packed(np.concatenate([[0], np.cumsum([len(strip[1]) for strip in kept])]).astype(np.int64)),
        "codes": packed(np.concatenate([strip[1] for strip in kept]) if kept else np.array([], dtype=np.int64)),
        "steps": drawn(np.concatenate([strip[2] for strip in kept]) if kept else np.array([]), log=True),
        "left": len(everything) - len(kept),
    }
