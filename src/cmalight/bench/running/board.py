"""What the driver knows while the runs are under way, for whoever shows it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cmalight.bench.running.one_run import Told
from cmalight.bench.spec.planning import PlannedRun


@dataclass(frozen=True)
class View:
    """One moment of the board.

    cells_done: those in which every solver has a result
    seconds_left: an estimate; None before there is anything to estimate it from
    """

    total: int
    recorded: Counter[str]
    reused: int
    running: tuple[tuple[PlannedRun, Told], ...]
    seconds_left: float | None
    cells: int
    cells_done: int

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
        self._wall: list[float] = []
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

    def record(self, run: PlannedRun, status: str, wall: float | None) -> None:
        """wall: the seconds the run took; None for one that was there already."""
        self.recorded[status] += 1
        self._open_in_cell[run.cell] -= 1
        if wall is None:
            self.reused += 1
        else:
            self._wall.append(wall)

    def view(self) -> View:
        with self._lock:
            running = tuple((self._by_key[key], told) for key, told in self._told.items())
        open_in_cell = self._open_in_cell.values()
        cells_done = sum(count == 0 for count in open_in_cell)
        recorded = Counter(self.recorded)
        return View(len(self.runs), recorded, self.reused, running, self._seconds_left(), len(open_in_cell), cells_done)

    def _seconds_left(self) -> float | None:
        left = len(self.runs) - sum(self.recorded.values())
        if self._wall and self.workers is None:
            return left * (time.monotonic() - self._begun) / len(self._wall)
        a_run = sum(self._wall) / len(self._wall) if self._wall else self.seconds_a_run
        return None if a_run is None else left * a_run / (self.workers or 1)
