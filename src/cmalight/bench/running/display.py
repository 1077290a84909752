"""What a driver shows: a live table on a terminal, one line per run otherwise."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from cmalight.bench.running.board import View
from cmalight.bench.spec.planning import PlannedRun
from cmalight.bench.spec.study import Plain

_SHOWN_FAILURES = 5
_logger = logging.getLogger("cmalight.bench")


class Display:
    """Told of the course of a study; shows nothing."""

    def recorded(self, run: PlannedRun, content: Plain, view: View) -> None: ...
    def tick(self, view: View) -> None: ...
    def close(self) -> None: ...


def make_display(progress: bool) -> Display:
    """What fits where standard error goes."""
    if not progress:
        return Display()
    return LiveTable() if sys.stderr.isatty() else Lines()


class Lines(Display):
    """One message per run."""

    def recorded(self, run: PlannedRun, content: Plain, view: View) -> None:
        left = "" if view.seconds_left is None else f", {view.time_left}"
        _logger.info("%d of %d%s: %s: %s", view.done, view.total, left, run, outcome(content))


class LiveTable(Display):
    """A rich table that is drawn anew: counts, the runs under way with epoch and loss, the last failures."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._failures: list[str] = []
        self._next = 0.0
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)
        self._live.start()

    def recorded(self, run: PlannedRun, content: Plain, view: View) -> None:
        if content["status"] != "done":
            self._failures = [*self._failures, f"{run}: {outcome(content)}"][-_SHOWN_FAILURES:]
        self._draw(view)

    def tick(self, view: View) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.5
            self._draw(view)

    def close(self) -> None:
        self._live.stop()

    def _draw(self, view: View) -> None:
        self._live.update(drawing(view, self._failures), refresh=True)


def drawing(view: View, failures: list[str]) -> Any:
    """The table as rich draws it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    summary = Text(
        f"{view.cells_done} of {view.cells} cells done: {view.done} of {view.total} runs recorded "
        f"({view.reused} were there), {len(view.running)} running, {view.failures} without a figure, "
        f"{view.time_left}"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("running", "network", "seed", "solver", "epoch", "loss", "seconds"):
        table.add_column(heading, justify="right" if heading in ("seed", "epoch", "loss", "seconds") else "left")
    for run, told in view.running:
        loss = "" if told.loss is None else f"{told.loss:.5g}"
        figures = (str(told.epoch), loss, f"{told.seconds:.0f}")
        table.add_row(run.dataset, run.network.name, str(run.seed), run.solver.name, *figures)
    return Group(summary, table, *(Text(line, style="red", overflow="ellipsis", no_wrap=True) for line in failures))


def outcome(content: Plain) -> str:
    """How a run ended, in a few words."""
    if content["status"] != "done":
        return f"{content['status']}: {' '.join(str(content['error']['message']).split())}"
    epochs = len(content["epochs"].get("epoch", ()))
    return f"loss {content['final_loss']:.5g} after {epochs} epochs and {content['seconds']:.1f} s"
