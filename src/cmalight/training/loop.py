"""One training: from its first epoch, or its checkpoint, to its stop."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import refuse_broadcast
from cmalight.evaluation.objective import Objective
from cmalight.evaluation.randomness import devices_of, get_random_state, set_random_state
from cmalight.training.checkpoint import CheckpointError, CheckpointFile, pack_modules, unpack_modules
from cmalight.training.data import counts_rows, pairs_of
from cmalight.training.engine import Engine
from cmalight.training.history import EpochRecord, History, HistoryFile
from cmalight.training.measuring import Measuring
from cmalight.training.steps import PlainSteps
from cmalight.training.stopping import Status, Stop
from cmalight.training.tracking import Callback, Tracker


@dataclass
class Training:
    """The parts of one training, and the loop over its epochs."""

    objective: Objective
    batches: Any
    steps: PlainSteps
    tracker: Tracker
    engine: Engine
    measuring: Measuring
    callbacks: Sequence[Callback]
    checkpoint: CheckpointFile | None
    history_path: Path | None
    history: History = field(default_factory=History)
    resumed_at: int = 0
    _history_file: HistoryFile | None = None
    _recorded: tuple[int, int] = (0, 0)  # evaluations and evaluated rows in the history
    _by_rows: bool = False  # whether the samples of a batch are its rows

    def run(self) -> Stop:
        """Train until a rule stops it; the training clock starts here."""
        self._resume()
        if self.history_path is not None:
            self._history_file = HistoryFile(self.history_path, self.history)
        model = self.objective.model
        self._by_rows = counts_rows(self.objective.loss_fn, self.batches)
        if not model.training:  # else layers that were frozen in eval mode stay so
            model.train()
        self.tracker.begin(self.steps)
        stop = Stop(Status.INTERRUPTED, "an error")
        try:
            stop = self._loop()
        except KeyboardInterrupt:  # the second Ctrl-C
            stop = Stop(Status.INTERRUPTED, "interrupted by Ctrl-C")
            raise
        finally:
            self.tracker.clock.stop()
            self.tracker.display.close(stop.reason)
        return stop

    def _loop(self) -> Stop:
        clock = self.tracker.clock
        if (stop := self._stop_between_epochs()) is not None:
            return Stop(stop.status, f"nothing left to train: {stop.reason}") if self.resumed_at else stop
        with clock.paused():  # the kernel is built once per machine
            self.engine.compile(self.steps)
            if self.engine.wanted == "compiled" and self.engine.reason:
                self.tracker.display.note(f"not compiled: {self.engine.reason}")
        while stop is None:
            try:
                stop = self._epoch()
            except Stop as inside_an_epoch:
                return inside_an_epoch.with_traceback(None)  # whose frames hold a batch
            with clock.paused():
                stop = self._conclude_epoch() or stop or self._stop_between_epochs()
        return stop

    def _epoch(self) -> Stop | None:
        """Take the steps of one epoch.

        If Stop is raised, the weights are where the last step put them, or, for an optimizer that judges whole epochs,
        where the epoch began.
        """
        steps, tracker = self.steps, self.tracker
        compiled = self.engine.begin_epoch()
        tracker.begin_epoch()
        with steps.training_point(), self._evaluating():
            with steps.epoch():
                if compiled is not None:
                    steps.compiled(compiled, self.engine.sizes)
                else:
                    objective = self.objective
                    pairs = pairs_of(self.batches, objective.model, objective.loss_fn, by_rows=self._by_rows)
                    for inputs, targets, count in pairs:
                        tracker.before()
                        loss = steps.eager(functools.partial(self._backward, inputs, targets), count)
                        tracker.after(loss, [count])
            return tracker.end_epoch()

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Inside the block f is native, if it can be, and stops as the steps do; outside the model may change."""
        evaluated = self.steps.objective or self.objective
        before = evaluated.before_batch
        self.objective.fast, evaluated.before_batch = self.engine.fast(), self.tracker.stop_if_asked
        try:
            yield
        finally:
            self.objective.fast, evaluated.before_batch = None, before

    def _backward(self, inputs: Any, targets: Any) -> Tensor:
        self.steps.optimizer.zero_grad()
        loss_fn: Any = self.objective.loss_fn
        output = self.objective.model(inputs)
        refuse_broadcast(output, targets, loss_fn)
        loss: Tensor = loss_fn(output, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def _conclude_epoch(self) -> Stop | None:
        """Measure, record, call the callbacks, save; all off the training clock."""
        record = self._record()
        self.history.append(record)
        self.measuring.see(record)
        if self._history_file is not None:
            self._history_file.append(record)
        self.tracker.display.epoch_done(record)
        asked = [callback.on_epoch_end(record) for callback in self.callbacks]
        if self.checkpoint is not None and all(
            bool(torch.isfinite(p).all()) for p in self.objective.model.parameters()
        ):
            self.checkpoint.keep(self._state_dict(), self.history)
        return Stop(Status.CALLBACK, "a callback asked for it") if any(asked) else None

    def _record(self) -> EpochRecord:
        before, self._recorded = self._recorded, self.tracker.work()
        said = {"batch_loss": self.tracker.batch_loss(), **self.steps.record(), **self.measuring.numbers()}
        return EpochRecord(
            epoch=len(self.history),
            seconds=self.tracker.clock.seconds(),
            evaluations=self._recorded[0] - before[0],
            evaluated_rows=self._recorded[1] - before[1],
            **said,
        )

    def _stop_between_epochs(self) -> Stop | None:
        """The rules on the epoch that is done, then those on the one that would come; also right after resuming."""
        done, rules = len(self.history), self.tracker.rules
        stop = rules.after_epoch(self.history[-1], self.measuring.epochs_since_best(done - 1)) if done else None
        if stop is None and self.steps.has_converged:
            stop = Stop(Status.CONVERGED, "converged: the learning rate is below rounding")
        return stop or rules.before_epoch(done, self.tracker.clock.seconds()) or self.tracker.interrupted()

    def problems(self) -> list[str]:
        """What could not be written, in words."""
        return [one.problem for one in (self.checkpoint, self._history_file) if one is not None and one.problem]

    def _state_dict(self) -> dict[str, Any]:
        """A copy of the state between two epochs."""
        return {
            "modules": pack_modules(self.objective.modules),
            "optimizer": tree_map_only(Tensor, Tensor.clone, self.steps.optimizer.state_dict()),
            "best": self.measuring.state_dict(),
            "random": get_random_state(devices_of(self.objective.model)),
            "batches_epoch": self.batches.epoch if isinstance(self.batches, TensorBatches) else 0,
            "steps": self.tracker.steps,
            "seconds": self.tracker.clock.seconds(),
        }

    def _resume(self) -> None:
        """Load the checkpoint, if there is one: all of it, or nothing."""
        if self.checkpoint is None:
            return
        before = self._state_dict()
        self.checkpoint.require_readable(before)
        try:
            found = self.checkpoint.load(self._load_state_dict)
        except CheckpointError:
            self._put(before)
            raise
        if found:
            self.resumed_at = len(self.history)
            self.tracker.display.note(f"resumed from {self.checkpoint.path} at epoch {self.resumed_at}")

    def _load_state_dict(self, state: dict[str, Any], history: History) -> None:
        self._put(state)
        self.history = history
        if isinstance(self.batches, TensorBatches):
            self.batches.set_epoch(int(state["batches_epoch"]))
        self._recorded = sum(record.evaluations for record in history), sum(record.evaluated_rows for record in history)
        self.tracker.resume(float(state["seconds"]), len(history), int(state["steps"]), self._recorded)

    def _put(self, state: dict[str, Any]) -> None:
        unpack_modules(self.objective.modules, state["modules"])
        self.steps.optimizer.load_state_dict(state["optimizer"])
        self.measuring.load_state_dict(state["best"])
        set_random_state(state["random"])
