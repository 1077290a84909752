"""Draws the README's picture: `python docs/pictures/why.py`.

Its figures are those of two pages, which are read here: the areas of docs/results/today.md, and the ratios of
docs/studies/control.md.
"""

import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1]
OURS, PUBLISHED, OTHERS = "#0072b2", "#d55e00", "#70757d"
# The rows of a picture that are ours; what is not here is somebody else's.
COLOURS = {"auto": OURS, "CMALight": PUBLISHED, "CMA": PUBLISHED, "IG": PUBLISHED}


def rows(page: str, first: str) -> dict[str, list[str]]:
    """Of the table whose head begins with `first`: the cells of each row by its name, without marks of Markdown."""
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
    """At τ = 0.01, on big and on small data sets."""
    return {
        name: (number(cells[1]), number(cells[4]))
        for name, cells in rows("results/today.md", "solver").items()
    }


def ratios() -> list[tuple[str, float, float]]:
    """Training loss over the best schedule's: of `auto`, and of the single schedule that is best on the group."""
    study = "studies/control.md"
    short = rows(study, "16 problems, 1,500 batches")
    long = rows(study, "6,000 batches, the 15 problems")
    few = rows(study, "42 problems")
    models = rows(study, "| ResNet")
    text = (DOCS / study).read_text(encoding="utf-8")
    unseen = re.search(r"Eight problems: ([\d.]+).*?\(`wsd` 10⁻¹ ([\d.]+)", text, re.DOTALL)
    return [
        ("tables, short runs", number(short["control"][0]), number(short["wsd 10⁻²"][0])),
        ("tables, long runs", number(long["control"][0]), number(long["wsd 10⁻²"][0])),
        ("tables not tuned on", float(unseen[1]), float(unseen[2])),
        ("tables of few batches", number(few["control"][0]), number(few["wsd 10⁻¹"][0])),
        ("ResNet, GPT, LSTM, ...", number(models["control"][6]), number(models["wsd 5·10⁻³"][6])),
    ]


def draw() -> str:
    """The picture as SVG."""
    with mpl.rc_context({"svg.hashsalt": "cmalight", "font.size": 9, "axes.spines.top": False}):
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
        for place, (name, (big, small)) in enumerate(reversed(areas().items())):
            colour = COLOURS.get(name, OTHERS)
            left.plot([big, small], [place, place], color=colour, linewidth=1)
            left.plot(big, place, "o", color=colour, markersize=6)
            left.plot(small, place, "o", color=colour, markersize=6, markerfacecolor="white")
        left.set_yticks(range(len(areas())), list(reversed(areas())))
        left.set(xlim=(0, 1), xlabel="area under the profile (more is better)")
        left.set_title("The paper's problems (● big, ○ small data)", loc="left", fontsize=9.5)
        for place, (_, auto, schedule) in enumerate(reversed(ratios())):
            right.plot(auto, place, "o", color=OURS, markersize=6)
            right.plot(schedule, place, "s", color=OTHERS, markersize=6)
            for text, value, up in (("auto", auto, 7), ("schedule", schedule, -14)):
                right.annotate(
                    f"{text} {value:.2f}",
                    (value, place),
                    xytext=(0, up),
                    textcoords="offset points",
                    ha="center",
                    color=COLOURS.get(text, OTHERS),
                )
        right.axvline(1, color="0.4", linewidth=0.8, linestyle=":")
        right.set_yticks(range(5), [title for title, *_ in reversed(ratios())])
        right.set(
            xlim=(0.65, 2.5),
            ylim=(-0.6, 4.6),
            xlabel="loss / best of all found (less is better)",
        )
        right.set_title("Against the best single schedule", loc="left", fontsize=9.5)
        for axes in (left, right):
            axes.spines["right"].set_visible(False)
            axes.tick_params(axis="y", length=0)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("why.svg").write_text(draw(), encoding="utf-8")
