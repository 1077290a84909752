"""Peak memory of an epoch beyond the same epoch without control, in copies of what is put back.

Under CMALight against SGD that is the parameters, under Controlled against Adam the parameters and Adam's state.

Each figure is the peak resident set (VmHWM) of a process forked for it, less that of the process that ran SGD.
glibc is told to give every block above 64 KiB back when it is freed, so the peak is what was held at one time;
"spread" is how far the rounds were apart. Linux only.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import statistics
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from common import LARGE, interleaved, quick_option, table
from torch import Tensor, nn

from cmalight import CMALight, Controlled, Objective

BATCHES = 16
DECAY = {"weight_decay": 1e-4}
# With a loss as flat as `flat_mse` the decrease is smaller than line 6 asks for, and larger than the search does.
SEARCH = {"lr": 1e-2, "tau": 1e-12, "gamma": 0.1, "max_extrapolations": 3}
CERTIFIED = {**SEARCH, "line_search": "certified"}


def flat_mse(output: Tensor, target: Tensor) -> Tensor:
    return 1e-2 * nn.functional.mse_loss(output, target)


def plain() -> nn.Sequential:
    return LARGE.model()


def batch_norm() -> nn.Sequential:
    layers: list[nn.Module] = []
    for layer in plain():
        layers += [layer, nn.BatchNorm1d(layer.out_features)] if isinstance(layer, nn.Linear) else [layer]
    return nn.Sequential(*layers)


def sgd(build: Callable[[], nn.Module], options: dict[str, Any]) -> str:
    model, batches = build(), LARGE.batches(BATCHES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, **options)
    for x, y in batches:
        optimizer.zero_grad()
        flat_mse(model(x), y).backward()
        optimizer.step()
    return "SGD"


def cmalight(build: Callable[[], nn.Module], options: dict[str, Any], merge: bool | None = None) -> str:
    model, batches = build(), LARGE.batches(BATCHES)
    optimizer = CMALight(model.parameters(), **options)
    objective: Any = Objective(model, flat_mse, batches, merge=merge)
    if "gamma" not in options:
        objective = lambda: 1e6  # noqa: E731 - line 7 accepts, and no evaluation adds to the peak
    with optimizer.epoch(objective, model=model) as epoch:
        for x, y in epoch.batches(batches):
            optimizer.zero_grad()
            loss = flat_mse(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    return str(epoch.report.outcome.name)


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def adam_alone(build: Callable[[], nn.Module]) -> str:
    model, batches = build(), LARGE.batches(BATCHES)
    optimizer = adam(model)
    for _ in range(3):
        for x, y in batches:
            optimizer.zero_grad()
            flat_mse(model(x), y).backward()
            optimizer.step()
    return "Adam"


def controlled(build: Callable[[], nn.Module]) -> str:
    """Three epochs in two windows each, so that there is a state to copy, and one copy follows another."""
    model, batches = build(), LARGE.batches(BATCHES)
    optimizer, objective = Controlled(adam(model), window=BATCHES // 2), Objective(model, flat_mse, batches)
    for _ in range(3):
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = flat_mse(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
    return str(epoch.report.outcome.name)


def peak_of(function: Callable[..., str], *arguments: Any) -> tuple[int, str]:
    """The peak in bytes of a process that runs this alone, and what it returned."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child(connection: Connection) -> None:
        result = function(*arguments)
        status = Path("/proc/self/status").read_text()
        connection.send((1024 * int(status.split("VmHWM:")[1].split()[0]), result))

    process = context.Process(target=child, args=(sender,))
    process.start()
    sender.close()
    answer: tuple[int, str] = receiver.recv()
    process.join()
    return answer


def main() -> None:
    rounds = 1 if quick_option(__doc__) else 2
    torch.set_num_threads(1)
    m_mmap_threshold = -3
    ctypes.CDLL("libc.so.6").mallopt(m_mmap_threshold, 1 << 16)
    rows = []
    for build in (plain, batch_norm):
        copy = sum(p.numel() * p.element_size() for p in build().parameters())
        runs: dict[str, tuple[Any, ...]] = {
            "SGD": (sgd, build, {}),
            "accepted on line 7": (cmalight, build, {"lr": 1e-2}),
            "line search": (cmalight, build, SEARCH),
            "certified line search": (cmalight, build, CERTIFIED),
        }
        if build is plain:  # batches are never merged under BatchNorm
            runs["line search, merge=False"] = (cmalight, build, SEARCH, False)
            runs["SGD, weight decay"] = (sgd, build, DECAY)
            runs["accepted, weight decay"] = (cmalight, build, {"lr": 1e-2, **DECAY})
        peaks = interleaved({name: partial(peak_of, *run) for name, run in runs.items()}, rounds, warmup=0)
        for name in [name for name in runs if not name.startswith("SGD")]:
            base = peaks["SGD, weight decay" if "decay" in name else "SGD"]
            extra = [(mine - sgds) / copy for (mine, _), (sgds, _) in zip(peaks[name], base, strict=True)]
            figures = (f"**{statistics.median(extra):.2f}**", f"{max(extra) - min(extra):.2f}")
            rows.append([build.__name__, name, peaks[name][0][1], *figures])
    print(table(["model", "epoch", "outcome", "copies beyond SGD", "spread"], rows))
    print()
    rows = []
    for build in (plain, batch_norm):
        copy = 3 * sum(p.numel() * p.element_size() for p in build().parameters())
        both = {"Adam": partial(peak_of, adam_alone, build), "Controlled": partial(peak_of, controlled, build)}
        peaks = interleaved(both, rounds, warmup=0)
        extra = [(mine - base) / copy for (mine, _), (base, _) in zip(peaks["Controlled"], peaks["Adam"], strict=True)]
        figures = (f"**{statistics.median(extra):.2f}**", f"{max(extra) - min(extra):.2f}")
        rows.append([build.__name__, peaks["Controlled"][0][1], *figures])
    print(table(["model", "Controlled(Adam): last epoch", "copies beyond Adam", "spread"], rows))


if __name__ == "__main__":
    main()
