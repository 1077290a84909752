"""What the figures for a paper are drawn on: sizes and fonts, panels, axes, legends, and how they become files."""

from __future__ import annotations

import io
import itertools
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmalight.bench.analysis.curves import Value
from cmalight.bench.report.styles import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _ONE_PANEL, _HEIGHT = 7.0, 4.6, 2.9
# What a figure has room for below its panels, and how much higher each further row makes it, in inches.
_LEGEND_ROWS, _LEGEND_ROW = 3, 0.17
_LINES: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2)), "dot": (0, (1.2, 1.6)), "dashdot": (0, (5, 1.6, 1.2, 1.6))}
LOOK = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6eb",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "pdf.fonttype": 42,
    "figure.dpi": 100,
}


def saved(figure: Figure, kind: str) -> bytes:
    content = io.BytesIO()
    metadata = {"CreationDate": None} if kind == "pdf" else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font does not have
        figure.savefig(content, format=kind, dpi=160, metadata=metadata)
    figure.set_layout_engine("none")  # what follows keeps the layout, which takes longer than drawing
    return content.getvalue()


def grid(rows: int, columns: int, *, height: float, **more: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH if rows * columns > 1 else _ONE_PANEL, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    return figure, list(axes.flat)


def panels(count: int, *, height: float = _HEIGHT) -> tuple[Figure, list[Axes]]:
    return grid(1, count, height=height)


def line_look(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "linestyle": _LINES[style.dash]}


def plain(name: str) -> str:
    """A name that matplotlib takes neither for mathematics nor, by its first letter, for one to leave out."""
    text = name.replace("$", r"\$")
    return f"\u2009{text}" if text.startswith("_") else text


def share_axis(axes: Axes) -> None:
    axes.set_ylim(-0.02, 1.03)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylabel("share of problems")


def plain_ticks(axes: Axes, end: float) -> None:
    marks = (1,) if end > 200 else (1, 3) if end > 20 else (1, 2, 5) if end > 4 else (1, 1.5, 2, 3)
    powers = [10.0**power for power in range(int(math.log10(end)) + 1)]
    ticks = [mark * power for power in powers for mark in marks if mark * power <= end]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def upright_or_slanted(axes: Axes, names: Sequence[str]) -> None:
    """Names side by side in one of two panels, which has room for some 45 letters in a row."""
    room = 45 / max(1, len(names))
    if any(len(left) + len(right) > 2 * (room - 1) for left, right in itertools.pairwise(names)):
        axes.tick_params(axis="x", rotation=25)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")


def value_axis(axes: Axes, value: Value) -> None:
    """Losses on a logarithmic scale where all are positive, labelled at 1, 2 and 5 where powers of ten are few."""
    from matplotlib.ticker import LogLocator

    if value == "test_accuracy":
        axes.yaxis.set_major_formatter("{x:.0%}")
        return
    drawn = [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()]
    heights = np.concatenate([np.array([]), *drawn])
    heights = heights[np.isfinite(heights)]
    if len(heights) and heights.min() > 0:
        axes.set_yscale("log")
        if heights.max() < 1000 * heights.min():
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")


def with_legend(figure: Figure, solvers: Sequence[str], looks: dict[str, Style]) -> Figure:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **line_look(looks[solver])) for solver in solvers]
    columns = legend_columns(figure, solvers)
    beyond = math.ceil(len(solvers) / columns) - _LEGEND_ROWS
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * max(beyond, 0))
    figure.legend(handles, [plain(solver) for solver in solvers], loc="outside lower center", ncols=columns)
    return figure


def legend_columns(figure: Figure, names: Sequence[str]) -> int:
    """So many that the longest name fits into each: about 15 letters per inch, and 8 for the line before a name."""
    letters = int(15 * figure.get_figwidth())
    return max(1, min(len(names), 5, letters // (8 + max(map(len, names), default=1))))
