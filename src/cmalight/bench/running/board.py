"""What the driver knows while the runs are under way, for whoever shows it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cmalight.bench.running.one_run import Told
from cmalight.bench.spec.planning import PlannedRun
from cmalight.errors import duration


@dataclass(frozen=True)
class View:
    """One moment of the board.

    cells_done: those in which every solver has a result
    seconds_left: an estimate; None before there is anything to estimate it from
    is_bound: it is by the time limit alone, to which loading, measuring and starting processes come
    """

    total: int
    recorded: Counter[str]
    reused: int
    running: tuple[tuple[PlannedRun, Told], ...]
    seconds_left: float | None
    cells: int
    cells_done: int
    is_bound: bool = False

    @property
    def time_left(self) -> str:
        """As people read it."""
        return f"{'at least ' if self.is_bound else ''}{duration(self.seconds_left)} left"

    @property
    def done(self) -> int:
        return sum(self.recorded.values())

    @property
    def failures(self) -> int:
        return self.done - self.recorded["done"]


@dataclass
class Board:
    """Told by the workers' threads of the runs' course, asked by the driver."""

    runs: Sequence[PlannedRun]
    workers: int | None
    seconds_a_run: float | None
    recorded: Counter[str] = field(default_factory=Counter)
    reused: int = 0

    def __post_init__(self) -> None:
        self._by_key = {run.key: run for run in self.runs}
        self._open_in_cell = Counter(run.cell for run in self.runs)
        self._told: dict[str, Told] = {}
        self._ended: set[str] = set()
        self._lock = threading.Lock()
        self._ended_now = 0
        self._begun = time.monotonic()

    def hear(self, told: Told) -> None:
        with self._lock:
            if told.key in self._by_key and told.key not in self._ended:  # a late word of a cluster's worker
                self._told[told.key] = told

    def ends(self, key: str, *, for_good: bool) -> None:
        with self._lock:
            self._told.pop(key, None)
            if for_good:
                self._ended.add(key)

    def record(self, run: PlannedRun, status: str, *, reused: bool = False) -> None:
        """A run has a result; `reused`: it was there already."""
        self.recorded[status] += 1
        self._open_in_cell[run.cell] -= 1
        if reused:
            self.reused += 1
        else:
            self._ended_now += 1

    def view(self) -> View:
        with self._lock:
            running = tuple((self._by_key[key], told) for key, told in self._told.items())
        open_in_cell = self._open_in_cell.values()
        cells_done = sum(count == 0 for count in open_in_cell)
        seconds_left, is_bound = self._seconds_left(len(running))
        return View(
            total=len(self.runs),
            recorded=Counter(self.recorded),
            reused=self.reused,
            running=running,
            seconds_left=seconds_left,
            cells=len(open_in_cell),
            cells_done=cells_done,
            is_bound=is_bound,
        )

    def _seconds_left(self, running: int) -> tuple[float | None, bool]:
        """By the pace so far, in which starting processes, loading and measuring are; a run under way is half done."""
        left = len(self.runs) - sum(self.recorded.values())
        if self._ended_now:
            pace = (time.monotonic() - self._begun) / (self._ended_now + running / 2)
            return max(left - running / 2, 0.0) * pace, False
        return None if self.seconds_a_run is None else left * self.seconds_a_run / (self.workers or 1), True
