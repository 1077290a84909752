"""Draws the README's picture from real runs, in under a minute: `python docs/pictures/why.py`.

Two small networks of the same start are trained by the same SOAP with the same warm-up, constant
learning rate and linear decay, once alone and once under the watchdog. On the right, two of the
1,280 batches have targets that are 10,000 times too large.
"""

import io
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import nn

from cmalight import SOAP, Auto, Objective, TensorBatches
from cmalight.rules.watchdog import Watchdog

EPOCHS, SEEDS, GARBAGE = 40, (0, 1, 2), (400, 800)
OURS, PLAIN = "#0072b2", "#d55e00"
TITLES = {(): "Nothing goes wrong", GARBAGE: "Targets of two batches times 10,000"}


def problem(seed: int) -> tuple[torch.Tensor, torch.Tensor, nn.Module]:
    """Inputs, targets and a network; the seed is that of the weights."""
    x = 2 * torch.rand(4000, 8, generator=torch.Generator().manual_seed(0)) - 1
    y = torch.sin(2 * x[:, :4].sum(1, keepdim=True)) * x[:, 4:5] + x[:, 5:6] ** 2
    torch.manual_seed(seed)
    hidden = [nn.Linear(8, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh()]
    return x, y, nn.Sequential(*hidden, nn.Linear(50, 1))


def run(seed: int, *, watched: bool, garbage: tuple[int, ...]) -> tuple[list[int], list[float]]:
    """The steps at which the loss over all data was measured, and the losses."""
    x, y, model = problem(seed)
    loader = TensorBatches(x, y, batch_size=128, seed=seed)
    loss_fn, total = nn.MSELoss(), EPOCHS * len(loader)
    if watched:
        objective = Objective(model, loss_fn, loader)
        optimizer = Auto(model.parameters(), objective, total_steps=total)
        scheduler = None
    else:
        optimizer = SOAP(model.parameters(), lr=1e-2)

        def same_schedule(step: int) -> float:
            return Watchdog().factor((min(step, total - 1) + 0.5) / total, step)

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, same_schedule)
    steps, losses = [], []
    batches = (batch for _ in range(EPOCHS) for batch in loader)
    for step, (inputs, target) in enumerate(batches, 1):
        loss = loss_fn(model(inputs), 1e4 * target if step in garbage else target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
        if step % 4 == 0:
            steps.append(step)
            with torch.no_grad():
                losses.append(loss_fn(model(x), y).item())
    return steps, losses


def draw() -> str:
    """The picture as SVG."""
    with mpl.rc_context({"svg.hashsalt": "cmalight", "font.size": 10, "axes.spines.top": False}):
        figure = Figure(figsize=(8.8, 3.4), layout="constrained", facecolor="white")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (garbage, title) in zip(panels, TITLES.items(), strict=True):
            for seed in SEEDS:
                for watched, colour, name in ((False, PLAIN, "SOAP alone"), (True, OURS, "Auto")):
                    steps, losses = run(seed, watched=watched, garbage=garbage)
                    print(f"{title}, seed {seed}, {name}: {losses[-1]:.2g}")
                    style = {"linewidth": 1.4, "alpha": 0.9, "color": colour}
                    if watched and not garbage:
                        style["linestyle"] = (0, (4, 4))
                    label = name if seed == SEEDS[0] else None
                    axes.semilogy(steps, losses, label=label, **style)
            for step in garbage:
                axes.axvline(step, color="0.5", linewidth=0.8, linestyle=":")
            axes.set_title(title, loc="left", fontsize=10.5)
            axes.set(xlabel="step", xlim=(0, steps[-1]), ylim=(1e-4, 20))
            axes.spines["right"].set_visible(False)
        panels[0].set_ylabel("training loss")
        panels[0].legend(frameon=False, loc="upper right")
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(__file__).with_name("why.svg").write_text(draw(), encoding="utf-8")
