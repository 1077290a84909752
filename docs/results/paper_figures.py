"""The figures of paper.md and its appendix as SVG."""

from functools import partial

import numpy as np
import pandas as pd
from paper_claims import READINGS, WORST_RATIO, all_costs
from paper_runs import TAUS, longest
from paper_tables import CIFAR_COLOURS, CIFAR_LABELS, COLOURS, KINDS, LABELS, at_times

from cmalight.bench import performance_profile

WIDTH = 270  # of a panel with profiles


def profiles(runs: pd.DataFrame, tau: str) -> str:
    """Figs. 2 to 4: performance profiles on small and big sets, one row of panels per reading."""
    lines = opened(640)
    for top, (reading, title) in zip((0, 310), READINGS.items(), strict=True):
        for left, (kind, datasets) in zip((50, 370), KINDS.items(), strict=True):
            costs = all_costs(runs, reading, tau, datasets)
            lines.append(f'<g transform="translate(0 {top})">')
            heading = f"{title}, {kind} sets: {len(costs)} problems"
            lines.append(f'<text x="{left}" y="24" font-weight="bold">{heading}</text>')
            lines += axes(left, f"work over the least work, at precision {tau}")
            curves = performance_profile(costs) if len(costs) else {}
            for solver, colour in COLOURS.items():
                if solver in curves:
                    points = outline(curves[solver], left)
                    style = f'fill="none" stroke="{colour}" stroke-width="2"'
                    lines.append(f'<polyline points="{points}" {style}/>')
            lines.append("</g>")
    return "\n".join([*lines, *legend(COLOURS), "</svg>", ""])


def boxes(runs: pd.DataFrame) -> str:
    """Fig. 1: evaluations per epoch and acceptance of CMALight and CMA, all runs at the largest budget."""
    runs = longest(runs)
    runs = runs.assign(per_epoch=runs["evaluations"] / runs["epochs"].clip(lower=1))
    lines = opened(300)
    panels = (
        ("per_epoch", "evaluations of f per epoch"),
        ("accepted", "fraction of accepted epochs"),
    )
    for left, (column, title) in zip((50, 400), panels, strict=True):
        lines.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
        shown = [(reading, solver) for reading in READINGS for solver in ("cmalight", "cma")]
        found = [
            runs.loc[(runs["reading"] == reading) & (runs["solver"] == solver), column].dropna()
            for reading, solver in shown
        ]
        most = max((values.quantile(0.95) for values in found if len(values)), default=1.0) or 1.0
        lines.append(f'<path d="M{left} 40V250H{left + 330}" fill="none" stroke="#444"/>')
        lines.append(f'<text x="{left - 6}" y="44" text-anchor="end">{most:.3g}</text>')
        for place, ((reading, solver), values) in enumerate(zip(shown, found, strict=True)):
            x = left + 45 + 80 * place
            label = f'<text x="{x}" y="{{}}" text-anchor="middle">{{}}</text>'
            lines += [label.format(268, LABELS[solver]), label.format(284, READINGS[reading])]
            if len(values):
                y = [250 - 210 * v / most for v in values.quantile([0.05, 0.25, 0.5, 0.75, 0.95])]
                style = f'stroke="{COLOURS[solver]}" fill="none" stroke-width="2"'
                lines.append(
                    f'<path d="M{x} {y[0]:.1f}V{y[1]:.1f}M{x} {y[3]:.1f}V{y[4]:.1f}" {style}/>'
                )
                body = f'x="{x - 20}" y="{y[3]:.1f}" width="40" height="{y[1] - y[3]:.1f}"'
                lines.append(f"<rect {body} {style}/>")
                lines.append(f'<path d="M{x - 20} {y[2]:.1f}h40" {style}/>')
    return "\n".join([*lines, "</svg>", ""])


def cifar_curves(points: pd.DataFrame) -> str:
    """Fig. 5: accuracy on the test part and training loss against time; medians of the starts."""
    lines, width = opened(300), 240
    most = points["seconds"].max()
    times = np.linspace(0, most, 81)
    medians = at_times(points, times).groupby(["solver", "seconds"]).median()
    step = 10.0 ** np.floor(np.log10(most))
    across = [(width * x / most, f"{x:g}") for x in np.arange(0, most + 1, step)]
    panels = (("accuracy", "accuracy on the test part"), ("train_loss", "training loss"))
    for left, (column, title) in zip((50, 350), panels, strict=True):
        highest = 1.0 if column == "accuracy" else 2.5
        lines.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
        upwards = [(part, f"{part * highest:g}") for part in (0, 0.2, 0.4, 0.6, 0.8, 1)]
        lines += frame(left, width, across, upwards, "seconds of the processor")
        for solver, colour in CIFAR_COLOURS.items():
            if solver not in medians.index:
                continue
            heights = (medians.loc[solver, column] / highest).clip(0, 1)
            places = zip(times, heights, strict=True)
            outline = " ".join(
                f"{left + width * x / most:.1f},{250 - 210 * y:.1f}" for x, y in places
            )
            style = f'fill="none" stroke="{colour}" stroke-width="2"'
            lines.append(f'<polyline points="{outline}" {style}/>')
    shown = {solver: colour for solver, colour in CIFAR_COLOURS.items() if solver in medians.index}
    return "\n".join([*lines, *legend(shown, left=610), "</svg>", ""])


def opened(height: int) -> list[str]:
    """The beginning of a figure."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="760" height="{height}" fill="white"/>',
    ]


def legend(colours: dict[str, str], left: int = 672) -> list[str]:
    """The solvers and their colours."""
    lines = []
    for place, (solver, colour) in enumerate(colours.items()):
        y = 60 + 22 * place
        label = (LABELS | CIFAR_LABELS).get(solver, solver.capitalize())
        lines.append(f'<path d="M{left} {y}h20" stroke="{colour}" stroke-width="3"/>')
        lines.append(f'<text x="{left + 26}" y="{y + 4}">{label}</text>')
    return lines


def axes(left: float, label: str) -> list[str]:
    """Frame, ticks and labels of a panel with profiles."""
    ticks = [(WIDTH * np.log(ratio) / np.log(WORST_RATIO), f"{ratio}") for ratio in (1, 10, 100)]
    return frame(left, WIDTH, ticks, [(height, f"{height:g}") for height in (0, 0.5, 1)], label)


def frame(
    left: float,
    width: float,
    across: list[tuple[float, str]],
    upwards: list[tuple[float, str]],
    label: str,
) -> list[str]:
    """A panel's frame, and its ticks: across in pixels, upwards as fractions of the height."""
    lines = [f'<path d="M{left} 40V250H{left + width}" fill="none" stroke="#444"/>']
    for x, text in across:
        lines.append(f'<text x="{left + x:.0f}" y="266" text-anchor="middle">{text}</text>')
    for height, text in upwards:
        y = 254 - 210 * height
        lines.append(f'<text x="{left - 6}" y="{y:.0f}" text-anchor="end">{text}</text>')
    return [*lines, f'<text x="{left + width / 2}" y="288" text-anchor="middle">{label}</text>']


def outline(shares: pd.Series, left: float) -> str:
    """The steps of a profile as points of a polyline."""
    points, height = [], 0.0
    for ratio, share in shares[shares.index <= WORST_RATIO].items():
        x = left + WIDTH * np.log(ratio) / np.log(WORST_RATIO)
        points += [(x, height), (x, share)] if points else [(x, share)]
        height = share
    points.append((left + WIDTH, height))
    return " ".join(f"{x:.1f},{250 - 210 * y:.1f}" for x, y in points)


FIGURES = {
    "paper-fig1.svg": boxes,
    **{f"paper-fig{n}.svg": partial(profiles, tau=tau) for n, tau in enumerate(TAUS, 2)},
}
