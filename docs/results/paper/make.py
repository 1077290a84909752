"""Makes the pages of the results from the published runs: `python docs/results/paper/make.py`.

Reads study.tar.xz and the texts beside it, paper.txt and today.txt; writes ../paper.md, ../today.md and the pictures.
`--results DIR` prints the table of claims for other results instead, `--descent FILE` with what descent.py found.
"""

import argparse
import io
import json
import re
import textwrap
from pathlib import Path

import claims
import matplotlib as mpl
import numpy as np
import pandas
import words
from cmalight.bench.analysis.curves import Bundles, Value, fractions
from cmalight.bench.analysis.summaries import control_figures
from matplotlib.figure import Figure

from cmalight import bench

HERE = Path(__file__).parent
ARCHIVE = HERE / "study.tar.xz"
DESCENT = HERE / "descent.json"
WIDTH = 100  # of a line of the documents
UNBROKEN = {"break_long_words": False, "break_on_hyphens": False}
COLOURS = {
    "light": {"ink": "#222832", "grid": "#dfe3e8"},
    "dark": {"ink": "#ced6dd", "grid": "#39424e"},
}
# Colour (for light and for dark paper), dashes and marker: any one of the three tells the solvers apart.
LOOKS = {
    "cmalight": ("#0072b2", "#56b4e9", "-", "o"),
    "cma": ("#d55e00", "#ff8c42", "-", "s"),
    "ig": ("#6e6e6e", "#a8a8a8", (0, (1.2, 1.6)), "v"),
    "adam": ("#007a5a", "#2fd3a5", (0, (5, 2)), "^"),
    "adagrad": ("#a86f00", "#f0b840", (0, (5, 2)), "D"),
    "adadelta": ("#a8487f", "#e5a0cc", (0, (5, 1.6, 1.2, 1.6)), "P"),
    "auto": ("#332288", "#a99cf0", (0, (8, 2)), "*"),
    "adam-wsd": ("#882255", "#e07ab0", (0, (3, 1, 1, 1)), "X"),
    "schedule-free-adamw": ("#5c5c00", "#cccc55", (0, (1.2, 1.6)), "<"),
    "prodigy-cosine": ("#1f6f6f", "#6fd0d0", (0, (3, 1, 1, 1)), ">"),
    "onecycle": ("#444444", "#bbbbbb", (0, (8, 2)), "p"),
}
# Of the solvers of today these are drawn; all are in the table.
OF_TODAY = (
    "auto",
    "adam-wsd",
    "onecycle",
    "prodigy-cosine",
    "schedule-free-adamw",
    "adam",
    "cmalight",
)
_WIDTH, _PANEL = (
    4.8,
    2.5,
)  # inches: what a phone shows without shrinking the letters below what can be read


class Drawing:
    """Panels below each other, in the colours of a theme."""

    def __init__(self, theme: str, rows: int, height: float = _PANEL) -> None:
        self.theme = theme
        self.ink = COLOURS[theme]["ink"]
        self.figure = Figure(figsize=(_WIDTH, rows * height), layout="constrained")
        self.panels = list(self.figure.subplots(rows, 1, squeeze=False).flat)
        for axes in self.panels:
            axes.grid(color=COLOURS[theme]["grid"], linewidth=0.6)
            axes.set_axisbelow(True)

    def look(self, solver: str) -> dict[str, object]:
        light, dark, dashes, marker = LOOKS[solver]
        return {
            "color": light if self.theme == "light" else dark,
            "linestyle": dashes,
            "marker": marker,
        }

    def line(self, axes, x, y, solver, **more) -> None:
        every = max(1, len(x) // 6)
        first = every * list(LOOKS).index(solver) // len(LOOKS)  # so that no marker hides another
        look = {**self.look(solver), "markevery": (first, every)}
        axes.plot(x, y, **look, linewidth=1.5, markersize=5, **more)

    def labels(self, axes, ends: dict[str, float], *, log: bool = False) -> None:
        """Names and markers at the right, where their lines end, moved apart where they would touch."""
        low, high = axes.get_ylim()
        scale = np.log10 if log else float
        bottom, top = scale(low), scale(high)
        order = sorted(ends, key=lambda one: ends[one])
        wanted = [(scale(ends[one]) - bottom) / (top - bottom) for one in order]
        for place, height in zip(order, apart(wanted, 0.075), strict=True):
            look = {**self.look(place), "linestyle": "none", "markersize": 5}
            axes.plot(1.03, height, **look, transform=axes.transAxes, clip_on=False)
            axes.annotate(
                claims.NAMES.get(place, place),
                (1.055, height),
                xycoords="axes fraction",
                color=self.look(place)["color"],
                va="center",
                fontsize=8.5,
                annotation_clip=False,
            )


def apart(heights: list[float], gap: float) -> list[float]:
    """The nearest heights in the same order with that gap between them, within 0 and 1 where they fit."""
    found = list(heights)
    for _ in range(200):
        for at in range(1, len(found)):
            missing = gap - (found[at] - found[at - 1])
            if missing > 0:
                found[at] += missing / 2
                found[at - 1] -= missing / 2
        found = [min(max(one, 0.02), 0.98) for one in found] if gap * len(found) < 0.96 else found
    return found


def profiles(theme: str, sizes: dict[str, bench.Traces], tau: float, solvers, shown) -> Figure:
    """Performance profiles by training time on big and small data sets: Figures 2 to 4 of the paper.

    Of the solvers that are compared, those of `shown` are drawn.
    """
    drawing = Drawing(theme, 2)
    for axes, (size, traces) in zip(drawing.panels, sizes.items(), strict=True):
        costs = bench.solution_costs(traces, tau, solvers=solvers)
        profile = bench.performance_profile(costs)
        end = 100.0
        ends = {}
        for solver in shown:
            inside = profile[solver][profile.index <= end]
            x = np.geomspace(1, end, 240)
            y = inside.to_numpy()[np.searchsorted(inside.index.to_numpy(), x, side="right") - 1]
            drawing.line(axes, x, y, solver)
            ends[solver] = float(y[-1])
        axes.set_xscale("log")
        axes.set_xlim(1, end)
        axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axes.set_xticks([], minor=True)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set_title(
            f"{size} data sets, τ = {tau:g}: {len(costs)} problems", loc="left", fontsize=9
        )
        drawing.labels(axes, ends)
    drawing.panels[-1].set_xlabel("time / least time of any solver")
    return drawing.figure


def control(theme: str, results: bench.Results) -> Figure:
    """Full evaluations per epoch and acceptance rates: Figure 1 of the paper."""
    drawing = Drawing(theme, 2, 1.6)
    runs = results.runs[results.runs["status"] == "done"]
    found = control_figures(runs, results.epochs)
    for axes, (field, title) in zip(
        drawing.panels,
        (("per_epoch", "full evaluations per epoch"), ("acceptance", "acceptance rate")),
        strict=True,
    ):
        for place, solver in enumerate(("cma", "cmalight")):
            values = found[field].reindex(runs[runs["solver"] == solver]["key"]).dropna()
            colour = drawing.look(solver)["color"]
            line = {"color": colour}
            axes.boxplot(
                values.to_numpy(),
                positions=[place],
                orientation="horizontal",
                widths=0.5,
                boxprops=line,
                medianprops={"color": colour, "linewidth": 2.5},
                whiskerprops=line,
                capprops=line,
                flierprops={"markeredgecolor": colour, "markersize": 3},
            )
        axes.set_yticks([0, 1], ["CMA", "CMALight"])
        axes.set_xlim(left=0)
        axes.set_title(title, loc="left", fontsize=9)
    return drawing.figure


def images(theme: str, results: bench.Results) -> Figure:
    """Test accuracy and training loss against time: Figure 5 of the paper."""
    drawing = Drawing(theme, 2)
    traces = bench.traces(results)
    bundles = Bundles(traces)
    (family,) = dict.fromkeys(traces.runs["family"])
    kinds: tuple[tuple[Value, str], ...] = (
        ("test_accuracy", "test accuracy"),
        ("loss", "training loss"),
    )
    for axes, (value, title) in zip(drawing.panels, kinds, strict=True):
        ends = {}
        for solver in [one for one in LOOKS if one in traces.labels.solvers]:
            curve = bundles.curve(family, solver, value, "seconds", fractions(240))
            if curve is None:
                continue
            colour = drawing.look(solver)["color"]
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
            drawing.line(axes, curve.x, curve.median, solver)
            ends[solver] = float(curve.median[-1])
        if value == "test_accuracy":
            axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set_xlim(left=0)
        axes.set_title(title, loc="left", fontsize=9)
        drawing.labels(axes, ends)
    drawing.panels[-1].set_xlabel("seconds of training")
    return drawing.figure


def pictures(found: claims.Parts) -> dict[str, object]:
    """By name: how each is drawn in a theme."""
    sizes = claims.by_size(found.tables)
    made = {"control": lambda theme: control(theme, found.tables)}
    for tau in claims.TAUS:
        made[f"profiles-{tau:g}"] = lambda theme, tau=tau: profiles(
            theme, sizes, tau, claims.PAPER, claims.PAPER
        )
    if len(found.images.runs):
        made["cifar10"] = lambda theme: images(theme, found.images)
    today, solvers = claims.by_size(found.today), solvers_of_today(found)
    for tau in claims.TAUS:
        made[f"today-{tau:g}"] = lambda theme, tau=tau: profiles(
            theme, today, tau, solvers, OF_TODAY
        )
    return made


def solvers_of_today(found: claims.Parts) -> list[str]:
    """Those that ran on small and on big data sets."""
    there = [set(claims.of_size(found.today, size).runs["solver"]) for size in ("big", "small")]
    return sorted(there[0] & there[1])


def drawn(found: claims.Parts) -> dict[str, str]:
    """The pictures as SVG, by the name of their files."""
    texts, made = {}, pictures(found)
    for theme, colours in COLOURS.items():
        ink = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color")
        look = {**dict.fromkeys(ink, colours["ink"]), "svg.hashsalt": "cmalight", "font.size": 9}
        look |= {"axes.spines.top": False, "axes.spines.right": False}
        for name, draw in made.items():
            with mpl.rc_context(look):
                place = HERE / f"{name}-{theme}.svg"
                texts[place.name] = svg(draw(theme))
    return texts


def svg(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def points(path: Path) -> list[dict[str, object]]:
    """What descent.py wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def _unique(runs: pandas.DataFrame, column: str) -> str:
    return ", ".join(sorted(runs[column].dropna().unique()))


def pages(results: bench.Results) -> dict[str, str]:
    """The pages by the name of their files: the texts, with what the runs say in the place of each `<<name>>`."""
    found = claims.parts(results)
    runs, solvers = results.runs, solvers_of_today(found)
    texts = {
        "claims": claims.table(found, points(DESCENT), is_published=True),
        "shallow": claims.shallow(found),
        "constant": claims.constant.table(found.tables),
        "first_epochs": claims.constant.first_epochs(found.tables),
        "nearly": f"{claims.constant.NEARLY:g}",
        "study": words.study(found),
        "today": claims.today(found.today, solvers),
        "of_today": words.of_today(found),
        "limit_of_today": words.numbers(found.today.runs["time_limit"]),
        "auto_by_start": words.auto_by_start(found, solvers),
        "standing": words.standing(found, solvers),
        "on_images": words.on_images(found),
        "problems_of_today": f"{len(claims.areas(found.today, 1e-2, solvers=solvers))}",
        "coverage": words.coverage(results),
        "planned": words.planned(results),
        "runs": f"{len(runs):,}",
        "hours": f"{runs['seconds'].sum() / 3600:.1f}",
        "failures": words.failures(runs),
        "pace": words.pace(found.tables),
        "pace_of_today": words.pace(found.today),
        "engines": words.engines(found),
        "cmalight": words.versions(found),
        "torch": _unique(runs, "version_torch"),
        "python": _unique(runs, "version_python"),
        "cpu": _unique(runs, "cpu"),
        "regularised": claims.regularised(found.regularised),
        "of_lambda": words.of_lambda(found),
        "verdicts_by_lambda": words.regularised(found),
        "largest_change": words.largest_change(found),
    }
    made = {}
    for path in sorted(HERE.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        for name, value in texts.items():
            text = text.replace(f"<<{name}>>", value)
        made[f"{path.stem}.md"] = wrapped(text)
    return made


def wrapped(text: str) -> str:
    """Paragraphs that a figure has made longer than a line of the documents, broken anew."""
    blocks = []
    for block in re.split(r"(```.*?```)", text, flags=re.DOTALL):
        if not block.startswith("```"):
            parts = block.split("\n\n")
            block = "\n\n".join(_filled(part) for part in parts)
        blocks.append(block)
    return "".join(blocks)


def _filled(part: str) -> str:
    """A paragraph, or a list point by point; tables and headings stay as they are."""
    too_long = any(len(line) > WIDTH for line in part.splitlines())
    if not too_long or re.search(r"^(\||#)", part, re.MULTILINE):
        return part
    ends = re.match(r"(\n*)(.*?)(\n*)$", part, re.DOTALL)
    made = []
    for point in re.split(r"\n(?=- )", ends[2]):
        indent = "  " if point.startswith("- ") else ""
        text = " ".join(point.split())
        made.append(textwrap.fill(text, WIDTH, subsequent_indent=indent, **UNBROKEN))
    return ends[1] + "\n".join(made) + ends[3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--results", type=Path, help="a results folder or archive: print its table of claims alone"
    )
    parser.add_argument("--descent", type=Path, help="what descent.py wrote for them")
    chosen = parser.parse_args()
    if chosen.results is not None:
        found = claims.parts(bench.load(chosen.results))
        print(claims.table(found, points(chosen.descent) if chosen.descent else ()))
        return
    results = bench.load(ARCHIVE)
    for name, text in pages(results).items():
        (HERE.parent / name).write_text(text, encoding="utf-8")
    for name, text in drawn(claims.parts(results)).items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
