"""Draws the README's picture: `python docs/pictures/why.py`.

Its figures are those of two pages, which are read here: the areas of docs/results/today.md, and
the ratios of docs/studies/control.md.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1]
OURS, PUBLISHED, OTHERS = "#0072b2", "#d55e00", "#70757d"
# The rows of a picture that are ours; what is not here is somebody else's.
COLOURS = {"auto": OURS, "CMALight": PUBLISHED, "CMA": PUBLISHED, "IG": PUBLISHED}


def rows(page: str, first: str) -> dict[str, list[str]]:
    """Of the table whose head begins with `first`: the cells of each row, by its name, unmarked."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(first)}.*\n\|[-:|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    if found is None:
        raise ValueError(
            f"No table in {page} begins with {first!r}: change docs/pictures/why.py with it"
        )
    cells = [
        [one.strip() for one in re.sub(r"[*`]", "", row).split("|")[1:-1]]
        for row in found[1].splitlines()
    ]
    return {name: rest for name, *rest in cells}


def number(cell: str) -> float:
    return float(re.match(r"[\d.]+", cell)[0])


def areas() -> dict[str, tuple[float, float]]:
    """At τ = 0.01 (the page has two more), on big and on small data sets."""
    return {
        name: (number(cells[1]), number(cells[4]))
        for name, cells in rows("results/today.md", "solver").items()
    }


@dataclass(frozen=True)
class Ratio:
    """Training loss over the best schedule's: geometric mean of a group, and its worst."""

    mean: float
    worst: float


def ratios() -> list[tuple[str, Ratio, Ratio]]:
    """Of `auto`, and of the single schedule that is best on the group."""
    study = "studies/control.md"

    def both(first: str, schedule: str, mean: int = 0, worst: int = 2) -> list[Ratio]:
        table = rows(study, first)
        chosen = (table["control"], table[schedule])
        return [Ratio(number(cells[mean]), number(cells[worst])) for cells in chosen]

    return [
        ("tables,\n1,500 batches", *both("24 problems, 1,500 batches", "wsd 10⁻²")),
        ("tables,\n6,000 batches", *both("24 problems, 6,000 batches", "wsd 3·10⁻²")),
        (
            "tables,\n24,000 batches",
            *both("18 problems, 24,000 batches", "warm-up and line, 3·10⁻²"),
        ),
        ("tables of\nfew batches", *both("few batches", "wsd 3·10⁻²", mean=3, worst=5)),
        ("ResNet, GPT,\nLSTM, ...", *both("| ResNet", "wsd 5·10⁻³", mean=6, worst=7)),
    ]


def draw() -> str:
    """The picture as SVG."""
    with mpl.rc_context({"svg.hashsalt": "cmalight", "font.size": 9, "axes.spines.top": False}):
        figure = Figure(figsize=(8.8, 4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
        for place, (name, (big, small)) in enumerate(reversed(areas().items())):
            colour = COLOURS.get(name, OTHERS)
            left.plot([big, small], [place, place], color=colour, linewidth=1)
            left.plot(big, place, "o", color=colour, markersize=6)
            left.plot(small, place, "o", color=colour, markersize=6, markerfacecolor="white")
        left.set_yticks(range(len(areas())), list(reversed(areas())))
        left.set(xlim=(0, 1), xlabel="area under the profile (more is better)")
        left.set_title(
            "The paper's problems, τ = 0.01 (● big, ○ small data)", loc="left", fontsize=9.5
        )
        for place, (_, auto, schedule) in enumerate(reversed(ratios())):
            right.plot(auto.mean, place, "o", color=OURS, markersize=6)
            right.plot(schedule.mean, place, "s", color=OTHERS, markersize=6)
            for text, ratio, up in (("auto", auto, 7), ("schedule", schedule, -14)):
                worst = f"{ratio.worst:.3f}" if ratio.worst < 2 else f"{ratio.worst:g}"
                right.annotate(
                    f"{text} {ratio.mean:.2f}, worst {worst}",
                    (ratio.mean, place),
                    xytext=(-4, up),
                    textcoords="offset points",
                    ha="left",
                    color=COLOURS.get(text, OTHERS),
                )
        right.axvline(1, color="0.4", linewidth=0.8, linestyle=":")
        right.set_yticks(range(5), [title for title, *_ in reversed(ratios())])
        right.set(
            xlim=(0.7, 3.4),
            ylim=(-0.6, 4.6),
            xlabel="loss / best of several runs (less is better)",
        )
        right.set_title("Means: auto, and the best single schedule", loc="left", fontsize=9.5)
        for axes in (left, right):
            axes.spines["right"].set_visible(False)
            axes.tick_params(axis="y", length=0)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("why.svg").write_text(draw(), encoding="utf-8")
