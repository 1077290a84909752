"""Draws the pictures of docs/understand/pictures.md: `python docs/understand/pictures/draw.py`.

CMALight on a function of two variables, as the mean of four batches, from one start with two step
sizes: the small one gives an accepted and a searched epoch, the large one begins with epochs that
are undone.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from cmalight import CMALight, EpochReport, Objective

CENTRES = [
    (0.6, 0.5),
    (-0.5, 0.7),
    (-0.6, -0.4),
    (0.5, -0.8),
]  # where each batch would like w to be
START, SMALL, LARGE = (0.5, 2.5), 0.5, 1.2
PANEL = (
    4.6,
    3.8,
)  # inches: one of two that stand side by side, or, on a telephone, below each other
COLOURS = {
    "light": {
        "line": "#222832",
        "faint": "#9aa4b1",
        "path": "#0072b2",
        "good": "#009e73",
        "bad": "#d55e00",
    },
    "dark": {
        "line": "#ced6dd",
        "faint": "#5b6470",
        "path": "#56b4e9",
        "good": "#2fd3a5",
        "bad": "#ff8c42",
    },
}


class Point(nn.Module):
    """Weights and nothing else."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w, dtype=torch.float64))


def batch_loss(w, centre):
    """A valley from lower left to upper right, with its lowest point at the batch's own place."""
    x, y = w[..., 0] - centre[0], w[..., 1] - centre[1]
    along, across = 0.8 * x + 0.6 * y, -0.6 * x + 0.8 * y
    return 0.25 * along**2 + across**2


def mean_loss(w):
    return sum(batch_loss(w, centre) for centre in CENTRES) / len(CENTRES)


@dataclass
class Drawn:
    """An epoch: its report, its points, the losses seen there, and where it was left."""

    report: EpochReport
    path: np.ndarray
    losses: list[float]
    left: np.ndarray


def run(lr, epochs, line_search="light"):
    """So many epochs from the start."""
    model = Point(START)
    optimizer = CMALight(model.parameters(), lr=lr, line_search=line_search, early_rejection=False)
    objective = Objective(
        model, None, CENTRES, forward=lambda model, centre: (batch_loss(model.w, centre), 1)
    )
    drawn = []
    for _ in range(epochs):
        path, losses = [model.w.detach().numpy().copy()], []
        with optimizer.epoch(objective) as epoch:
            for centre in epoch.batches(CENTRES):
                optimizer.zero_grad()
                loss = batch_loss(model.w, centre)
                loss.backward()
                epoch.observe(loss, 1)
                optimizer.step()
                path.append(model.w.detach().numpy().copy())
                losses.append(loss.item())
        drawn.append(Drawn(epoch.report, np.array(path), losses, model.w.detach().numpy().copy()))
    return drawn


def contours(axes, colours, limits):
    x, y = np.meshgrid(np.linspace(*limits[0], 300), np.linspace(*limits[1], 300))
    axes.contour(
        x, y, mean_loss(np.stack([x, y], -1)), levels=12, colors=colours["faint"], linewidths=0.7
    )
    axes.set(xlim=limits[0], ylim=limits[1], xticks=[], yticks=[])
    axes.set_aspect("equal")


def label(axes, text, point, offset, colour):
    axes.annotate(text, point, xytext=offset, textcoords="offset points", color=colour, fontsize=11)


def path(axes, colours, drawn, colour, style="-"):
    axes.plot(*drawn.path.T, style, color=colour, linewidth=1.4, marker="o", markersize=4)
    axes.plot(*drawn.path[0], "o", color=colours["line"], markersize=7)


def an_epoch(colours):
    (first,) = run(SMALL, 1)
    figure, axes = plt.subplots(figsize=PANEL, layout="constrained")
    contours(axes, colours, ((-1.9, 2.3), (-1.7, 2.9)))
    path(axes, colours, first, colours["path"])
    axes.annotate(
        "",
        first.path[-1],
        first.path[0],
        arrowprops={"arrowstyle": "->", "color": colours["bad"], "lw": 1.6},
    )
    for number, point in enumerate(first.path[1:-1], 1):
        label(axes, f"{number}", point, (6, 4), colours["path"])
    label(axes, "w⁰", first.path[0], (8, -4), colours["line"])
    label(axes, "w̃", first.path[-1], (-16, -12), colours["line"])
    label(axes, "ζd", (first.path[0] + first.path[-1]) / 2, (6, -24), colours["bad"])
    return figure


def losses_of_an_epoch(colours):
    (first,) = run(SMALL, 1)
    figure, bars = plt.subplots(figsize=PANEL, layout="constrained")
    bars.bar(range(1, 5), first.losses, color=colours["path"])
    bars.axhline(first.report.f_tilde, color=colours["good"])
    bars.axhline(mean_loss(first.path[0]), color=colours["line"], linestyle=":")
    bars.text(4.5, first.report.f_tilde, "f̃", color=colours["good"], ha="right", va="bottom")
    bars.text(
        4.5, mean_loss(first.path[0]), "f(w⁰)", color=colours["line"], ha="right", va="bottom"
    )
    bars.set(xlabel="batch", ylabel="its loss, before its step", xticks=range(1, 5))
    return figure


def an_undone_epoch(colours):
    (undone,) = run(LARGE, 1)
    figure, axes = plt.subplots(figsize=(5, 4.6), layout="constrained")
    contours(axes, colours, ((-5.5, 6.5), (-7, 7)))
    path(axes, colours, undone, colours["bad"], "--")
    axes.annotate(
        "",
        undone.path[0],
        undone.path[-1],
        arrowprops={
            "arrowstyle": "->",
            "color": colours["good"],
            "lw": 1.6,
            "connectionstyle": "arc3,rad=0.35",
        },
    )
    label(axes, "w⁰", undone.path[0], (10, -4), colours["line"])
    label(axes, "w̃", undone.path[-1], (8, 2), colours["bad"])
    return figure


def a_searched_epoch(colours):
    searched = run(SMALL, 5)[-1]
    figure, axes = plt.subplots(figsize=PANEL, layout="constrained")
    contours(axes, colours, ((-1.7, 1.7), (-1.7, 1.7)))
    path(axes, colours, searched, colours["path"])
    start, end = searched.path[0], searched.path[-1]
    axes.plot(*np.array([start, searched.left]).T, color=colours["good"], linewidth=1)
    axes.plot(*searched.left, "*", color=colours["good"], markersize=13)
    label(axes, "w⁴", start, (6, -14), colours["line"])
    label(axes, "w̃", end, (9, 0), colours["path"])
    label(axes, "w⁵", searched.left, (-24, -14), colours["good"])
    return figure


def a_search(colours):
    searched = run(SMALL, 5)[-1]
    start, end = searched.path[0], searched.path[-1]
    figure, along = plt.subplots(figsize=PANEL, layout="constrained")
    direction, zeta = (end - start) / searched.report.lr, searched.report.lr
    lengths = np.linspace(0, 1.5 * searched.report.alpha, 100)
    along.plot(
        lengths,
        [mean_loss(start + length * direction) for length in lengths],
        color=colours["faint"],
    )
    tried = [zeta]
    while tried[-1] < searched.report.alpha / 0.9 * 0.999:
        tried.append(tried[-1] / 0.9)
    along.plot(
        tried,
        [mean_loss(start + one * direction) for one in tried],
        "o",
        color=colours["path"],
        markersize=4,
    )
    alpha = searched.report.alpha
    along.plot(
        [alpha], [mean_loss(start + alpha * direction)], "*", color=colours["good"], markersize=13
    )
    along.set(
        xlabel="α", ylabel="f(w⁴ + α d)", xticks=[0, zeta, alpha], xticklabels=["0", "ζ", "α"]
    )
    return figure


def two_runs(colours):
    figure, axes = plt.subplots(figsize=(6.2, 3.2), layout="constrained")
    for line_search, colour in (("light", colours["path"]), ("certified", colours["good"])):
        drawn = run(LARGE, 25, line_search)
        heights = [mean_loss(one.path[0]) for one in drawn]
        axes.plot(heights, color=colour, marker="o", markersize=3, label=line_search)
        undone = [k for k, one in enumerate(drawn) if one.report.alpha == 0]
        axes.plot(
            undone, [heights[k] for k in undone], "x", color=colours["bad"], markersize=9, mew=1.8
        )
    axes.set(xlabel="epoch", ylabel="f(wᵏ); crosses: undone")
    axes.legend(frameon=False, labelcolor=colours["line"])
    return figure


PICTURES = {
    "epoch": an_epoch,
    "epoch-losses": losses_of_an_epoch,
    "undone": an_undone_epoch,
    "searched": a_searched_epoch,
    "searched-along": a_search,
    "runs": two_runs,
}


def main():
    for theme, colours in COLOURS.items():
        settings = dict.fromkeys(
            ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), colours["line"]
        )
        settings |= {
            "svg.hashsalt": "cmalight",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
        with plt.rc_context(settings):
            for name, draw in PICTURES.items():
                figure = draw(colours)
                target = Path(__file__).with_name(f"{name}-{theme}.svg")
                figure.savefig(target, transparent=True, metadata={"Date": None})
                target.write_text(
                    "\n".join(line.rstrip() for line in target.read_text().splitlines()) + "\n"
                )
                plt.close(figure)
    for lr in (SMALL, LARGE):
        for number, one in enumerate(run(lr, 10)):
            print(
                number,
                f"f {mean_loss(one.path[0]):.4f}, at its end {mean_loss(one.path[-1]):.4f}",
                one.report,
            )


if __name__ == "__main__":
    main()
