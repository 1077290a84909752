"""Draws the README's picture from two real runs, in a few seconds: `python docs/pictures/why.py`.

A small network is trained by AdamW, once alone and once under the watchdog with an objective. At step 450 the learning
rate is multiplied by 100. Nothing in the picture is made up: dots are losses of steps, bars and bounds are those of the
reports, diamonds are the values of f that settled the alarms.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import torch
from torch import nn

from cmalight import Controlled, Objective, TensorBatches
from cmalight.optim.reports import WindowReport

FIRST, MISTAKE, LAST, LR, FACTOR = 300, 450, 1000, 3e-3, 100
LOWEST, HIGHEST = 3e-3, 150.0
LEFT, RIGHT, TOP, BOTTOM = 64, 864, 66, 356
OURS, PALE, ALONE, ALARM, CONFIRMED, INK = (
    "#0072b2",
    "#9ccbe8",
    "#e69f00",
    "#c1272d",
    "#007a5a",
    "#333",
)
ALT = (
    "Training loss over steps. At step 450 the learning rate is multiplied by 100. The mean loss of "
    "that window lies above its bound: alarm. f at the end of the window is higher than f before, "
    "so the window is undone. After {undone} undone windows, with a scale of {scale}, the run goes on; "
    "later the scale is raised again, and that window is undone, too. AdamW alone stays high."
)


@dataclass(frozen=True)
class Judged:
    """A window with the steps it began and ended at, and f where the next one begins."""

    begin: int
    end: int
    report: WindowReport
    f_next: float


def run(*, watched: bool) -> tuple[list[float], list[Judged]]:
    """The loss of each step, and the windows."""
    x = 2 * torch.rand(4000, 8, generator=torch.Generator().manual_seed(0)) - 1
    y = torch.sin(2 * x[:, :4].sum(1, keepdim=True)) * x[:, 4:5] + x[:, 5:6] ** 2
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 1)
    )
    loader, loss_fn = TensorBatches(x, y, batch_size=128), nn.MSELoss()
    base = torch.optim.AdamW(model.parameters(), lr=LR)
    losses: list[float] = []
    windows: list[Judged] = []
    optimizer: torch.optim.Optimizer = base
    if watched:
        objective = Objective(model, loss_fn, loader)
        optimizer = Controlled(base, model, objective=objective)
        optimizer.on_report(
            lambda report: windows.append(
                Judged(len(losses) - report.steps, len(losses), report, objective())
            )
        )
    while len(losses) < LAST:
        for inputs, target in loader:
            if len(losses) == MISTAKE:
                optimizer.param_groups[0]["lr"] = FACTOR * LR
            loss = loss_fn(model(inputs), target)
            loss.backward()
            losses.append(loss.item())
            optimizer.step(loss) if watched else optimizer.step()
            optimizer.zero_grad()
    return losses, windows


def across(step: float) -> float:
    """The place of a step."""
    return LEFT + (RIGHT - LEFT) * (step - FIRST) / (LAST - FIRST)


def up(loss: float) -> float:
    """The place of a loss."""
    return BOTTOM - (BOTTOM - TOP) * math.log(loss / LOWEST) / math.log(HIGHEST / LOWEST)


def text(
    x: float, y: float, words: str, colour: str = INK, anchor: str = "start", weight: str = "normal"
) -> str:
    """A line of text."""
    style = f'fill="{colour}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'


def line(x: float, y: float, to_x: float, to_y: float, style: str) -> str:
    """A straight line."""
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" fill="none" {style}/>'


def diamond(step: float, loss: float, colour: str) -> str:
    """A value of f."""
    x, y = across(step), up(loss)
    return f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" fill="{colour}" stroke="white"/>'


def axes() -> list[str]:
    """Frame, ticks and labels."""
    lines = [f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#666"/>']
    for power in (-2, -1, 0, 1):
        y = up(10.0**power)
        lines.append(line(LEFT, y, RIGHT, y, 'stroke="#e8e8e8"'))
        lines.append(text(LEFT - 8, y + 4, f"{10.0**power:g}", anchor="end"))
    lines += [
        text(across(step), BOTTOM + 18, str(step), anchor="middle")
        for step in range(FIRST, LAST + 1, 100)
    ]
    lines.append(
        text(
            (LEFT + RIGHT) / 2,
            BOTTOM + 38,
            "step of the run, undone ones included",
            anchor="middle",
        )
    )
    lines.append(text(LEFT - 48, TOP - 12, "training loss"))
    return lines


def dots(losses: list[float]) -> str:
    """The losses of single steps under the watchdog."""
    places = (f"M{across(i + 0.5):.1f} {up(losses[i]):.1f}h0" for i in range(FIRST, LAST))
    return f'<path d="{"".join(places)}" stroke="{PALE}" stroke-width="3" stroke-linecap="round"/>'


def curve(losses: list[float], every: int = 5) -> str:
    """The losses of the base alone, means of a few steps."""
    means = [(i + every / 2, sum(losses[i : i + every]) / every) for i in range(FIRST, LAST, every)]
    points = " ".join(f"{across(step):.1f},{up(loss):.1f}" for step, loss in means)
    return f'<polyline points="{points}" fill="none" stroke="{ALONE}" stroke-width="1.6"/>'


def bars(window: Judged) -> list[str]:
    """The mean loss of a window, and its bound."""
    begin, end = across(max(window.begin, FIRST)) + 1, across(min(window.end, LAST)) - 1
    report = window.report
    colour = OURS if report.outcome.keeps else ALARM
    mean, bound = up(report.loss), up(report.bound)
    return [
        line(begin, bound, end, bound, f'stroke="{INK}" stroke-width="1.5" stroke-dasharray="4 3"'),
        line(begin, mean, end, mean, f'stroke="{colour}" stroke-width="4"'),
    ]


def undo(window: Judged) -> list[str]:
    """The two values of f, and the way back."""
    x, high, low = across(window.end), up(window.report.f_end), up(window.report.f_confirmed)
    way = f'stroke="{ALARM}" stroke-width="1.5" marker-end="url(#arrow)"'
    return [line(x, high + 6, x, low - 8, way), diamond(window.end, window.report.f_end, ALARM)]


def fraction(scale: float) -> str:
    """A power of one half, as people write it."""
    return "1" if scale == 1.0 else f"1/{1 / scale:.0f}"


def story(windows: list[Judged]) -> list[str]:
    """What happens, in words beside the place at which it happens."""
    undone = [window for window in windows if not window.report.outcome.keeps]
    failures = failures_in_a_row(windows)
    first, last = failures[0], failures[-1]
    before = windows[windows.index(first) - 1]
    f = first.report.f_confirmed
    back = first.begin if f == before.f_next else before.begin
    x = across(MISTAKE)
    way = f'stroke="{CONFIRMED}" stroke-width="1.5"'
    lines = [
        line(x, TOP - 2, x, BOTTOM, f'stroke="{INK}" stroke-dasharray="1 3"'),
        text(x - 6, TOP + 6, f"learning rate x {FACTOR}", anchor="end", weight="bold"),
        line(across(back), up(f), across(last.end), up(f), way),
        *(part for window in undone for part in undo(window)),
        diamond(back, f, CONFIRMED),
        text(across(back) - 4, up(f) + 28, "lowest f before:", CONFIRMED, "middle", "bold"),
        text(across(back) - 4, up(f) + 44, f"f = {f:.2g}", CONFIRMED, "middle"),
    ]
    mean = up(first.report.loss)
    lines += [
        text(across(first.begin) - 8, mean + 1, "alarm: the mean is", ALARM, "end", "bold"),
        text(across(first.begin) - 8, mean + 17, "above the bound", ALARM, "end", "bold"),
    ]
    found = f"f = {first.report.f_end:.2g} at the end, {f:.2g} before: undone"
    lines.append(
        text(across(first.end) + 12, up(first.report.f_end) - 30, found, ALARM, weight="bold")
    )
    for window in undone:
        number = windows.index(window)
        tried = windows[number - 1].report.scale
        x = (across(window.begin) + across(window.end)) / 2
        lines.append(text(x, BOTTOM - 10, f"x {fraction(tried)}", anchor="middle"))
    for window in undone[len(failures) :]:
        x, y = across(window.end) + 10, up(window.report.f_end) + 30
        lines.append(text(x, y, "scale raised:", ALARM, weight="bold"))
        lines.append(text(x, y + 16, "undone", ALARM, weight="bold"))
    x = across(last.end)
    lines.append(text(x + 12, BOTTOM - 10, f"x {fraction(last.report.scale)}", weight="bold"))
    lines.append(text(across(first.begin) - 8, BOTTOM - 10, "watchdog's scale:", anchor="end"))
    lines.append(text(across(765), up(0.009), "the run goes on", OURS, "end", "bold"))
    lines.append(text(RIGHT, up(0.55), "AdamW alone", "#8f6200", "end", "bold"))
    return lines


def failures_in_a_row(windows: list[Judged]) -> list[Judged]:
    """The first undone windows that follow each other."""
    start = next(i for i, window in enumerate(windows) if not window.report.outcome.keeps)
    return list(takewhile(lambda window: not window.report.outcome.keeps, windows[start:]))


def legend() -> list[str]:
    """What is drawn how."""
    y, entries = (
        22,
        (
            (PALE, "", 3, "loss of a step"),
            (OURS, "", 4, "mean of a window"),
            (INK, "4 3", 1.5, "its bound"),
        ),
    )
    lines, x = [], LEFT + 90
    for colour, dashes, width, words in entries:
        style = f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'
        lines += [line(x, y - 4, x + 24, y - 4, style), text(x + 30, y, words)]
        x += 46 + 8 * len(words)
    lines.append(f'<path d="M{x + 8} {y - 10}l6 6l-6 6l-6 -6z" fill="{ALARM}"/>')
    lines.append(f'<path d="M{x + 24} {y - 10}l6 6l-6 6l-6 -6z" fill="{CONFIRMED}"/>')
    lines.append(text(x + 36, y, "f over all data, evaluated after an alarm"))
    return lines


def draw() -> str:
    """The picture as SVG."""
    losses, windows = run(watched=True)
    alone, _ = run(watched=False)
    shown = [window for window in windows if window.end > FIRST]
    failures = failures_in_a_row(shown)
    alt = ALT.format(undone=len(failures), scale=fraction(failures[-1].report.scale))
    head = f'viewBox="0 0 880 404" font-family="sans-serif" font-size="13" role="img" aria-label="{alt}"'
    arrow = f'<path d="M0 0L8 4L0 8z" fill="{ALARM}"/>'
    marker = f'<marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">{arrow}</marker>'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
        f"<defs>{marker}</defs>",
        '<rect width="880" height="404" fill="white"/>',
        *axes(),
        curve(alone),
        dots(losses),
        *(part for window in shown for part in bars(window)),
        *story(shown),
        *legend(),
        "</svg>",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Controlled has no schedule")
    Path(__file__).with_name("why.svg").write_text(draw(), encoding="utf-8")
