"""The history of a run, one record per epoch: its file, TensorBoard, and what a terminal shows of it."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cmalight.errors import duration, needed
from cmalight.files import write_atomically

if TYPE_CHECKING:
    import pandas

    from cmalight.training.stopping import StopRules

logger = logging.getLogger("cmalight")

_SHOWN = 5  # first and last epochs in a printed history
_REFRESH_SECONDS = 0.2
_BAR_WIDTH = 16


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a run. Losses are means per sample.

    Attributes:
        epoch: Number of the epoch, from 0.
        seconds: Training time since the start of the run, without measuring.
        batch_loss: Mean loss of the epoch's batches, each at the weights before its step.
        lr: Learning rate of the last step, the largest over the parameter groups.
        outcome: The control's decision; "uncontrolled" for optimizers without a control.
        evaluations: Full passes over the training data that the optimizer made in this epoch.
        evaluated_rows: Rows that the optimizer evaluated in this epoch.
        train_loss: The training loss over all data after the epoch, in eval mode, if it was measured.
        validation_loss: The loss on the validation data after the epoch, in eval mode, if there is any.
        metrics: Metrics on the validation data by name.
        alpha: α of CMALight or CMA, 0 for an undone epoch; None for other optimizers.
        phi: φ of CMALight or CMA, the loss that an epoch has to beat; None for other optimizers.
    """

    epoch: int
    seconds: float
    batch_loss: float
    lr: float
    outcome: str = "uncontrolled"
    evaluations: int = 0
    evaluated_rows: int = 0
    train_loss: float | None = None
    validation_loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    alpha: float | None = None
    phi: float | None = None

    def __str__(self) -> str:
        parts = [f"loss {self.batch_loss:.5g}"]
        if self.validation_loss is not None:
            parts.append(f"validation {self.validation_loss:.5g}")
        parts += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        parts += [f"lr {self.lr:.3g}", self.outcome]
        if self.train_loss is not None:
            parts.append(f"true {self.train_loss:.5g}")
        return "  ".join([*parts, f"evaluations {self.evaluations}", f"{self.seconds:.1f} s"])

    def to_json(self) -> str:
        """The record as one line of JSON; a number that is not finite becomes null.

        Returns:
            JSON without a line break.
        """
        return json.dumps(_finite({**vars(self), "metrics": _finite(self.metrics)}), allow_nan=False)


class History(list[EpochRecord]):
    """The records of a run, a list in the order of the epochs."""

    def __repr__(self) -> str:
        """The first and the last epochs, one line each."""
        lines = [f"epoch {record.epoch}  {record}" for record in self]
        if len(lines) > 2 * _SHOWN:
            lines[_SHOWN:-_SHOWN] = ["..."]
        return "\n".join(lines) or "History of 0 epochs"

    def to_pandas(self) -> pandas.DataFrame:
        """The history as a frame.

        Returns:
            One row per epoch; each metric is a column.

        Raises:
            ImportError: pandas is not installed.
        """
        with needed("History.to_pandas needs pandas", "data"):
            import pandas
        columns = [one.name for one in fields(EpochRecord) if one.name != "metrics"]
        rows = [{**record.metrics, **{name: getattr(record, name) for name in columns}} for record in self]
        return pandas.DataFrame(rows, columns=[*columns, *(self[0].metrics if self else ())])


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


class HistoryFile:
    """A file of JSON lines that begins with the records of a resumed run and grows with the history.

    `problem` says why the last lines are not in the file.
    """

    def __init__(self, path: Path, history: History) -> None:
        self._path = path
        write_atomically(path, "".join(record.to_json() + "\n" for record in history))
        self._waiting: list[bytes] = []
        self.problem = ""

    def append(self, record: EpochRecord) -> None:
        """Add a line; lines that a full disk does not take are tried again with the next one."""
        self._waiting.append(record.to_json().encode() + b"\n")
        end = None
        try:
            with self._path.open("ab") as file:
                end = file.tell()
                file.write(b"".join(self._waiting))
        except OSError as error:
            if end is not None:  # half a line would spoil the file
                with contextlib.suppress(OSError):
                    os.truncate(self._path, end)
            problem = f"the last {len(self._waiting)} lines of {self._path} could not be written: {error.strerror}"
            if not self.problem:
                logger.warning("%s. Training goes on; the next epoch tries again.", problem)
            self.problem = problem
        else:
            self._waiting, self.problem = [], ""


class TensorBoard:
    """Writes losses, learning rate, outcome and metrics as scalars for TensorBoard.

    Args:
        folder: Folder of the log.

    Raises:
        ImportError: TensorBoard is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        with needed("TensorBoard needs its writer", "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(os.fspath(Path(folder).absolute()))

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Write the numbers of an epoch.

        Args:
            record: The numbers.
        """
        scalars = {
            "loss/batch": record.batch_loss,
            "loss/train": record.train_loss,
            "loss/validation": record.validation_loss,
            "control/lr": record.lr,
            "control/alpha": record.alpha,
            "control/evaluations": record.evaluations,
            f"outcome/{record.outcome}": 1.0,
            **{f"metric/{name}": value for name, value in record.metrics.items()},
        }
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.epoch)

    def close(self) -> None:
        """Finish the log."""
        self._writer.close()


class Display:
    """What a run shows on a stream, if there is one: a bar on a terminal, one line per epoch elsewhere."""

    def __init__(self, rules: StopRules, stream: TextIO | None) -> None:
        self._rules = rules
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._next_refresh = 0.0
        self._last: EpochRecord | None = None

    def note(self, text: str, end: str = "\n") -> None:
        """Show a line of text."""
        if self._stream is not None:
            self._stream.write(("\r\x1b[K" if self._is_terminal else "") + text + end)
            self._stream.flush()

    def position(self, epochs: float, seconds: float) -> None:
        """Move the bar; `epochs` counts the part of the running epoch that is done."""
        if self._is_terminal and time.perf_counter() >= self._next_refresh:
            self._next_refresh = time.perf_counter() + _REFRESH_SECONDS
            self.note(self._bar(epochs, seconds), end="")

    def epoch_done(self, record: EpochRecord) -> None:
        """Show the numbers of an epoch."""
        self._last = record
        if self._is_terminal:
            self.position(record.epoch + 1, record.seconds)
        else:
            self.note(f"epoch {record.epoch + 1}  {record}")

    def close(self, reason: str) -> None:
        """Show how the run ended."""
        if self._is_terminal and self._last is not None:
            self.note(f"epoch {self._last.epoch + 1}  {self._last}")
        self.note(f"stopped: {reason}")

    def _bar(self, epochs: float, seconds: float) -> str:
        fraction, last = self._rules.fraction_done(epochs, seconds), self._rules.max_epochs
        filled = round(fraction * _BAR_WIDTH)
        parts = [
            f"epoch {min(int(epochs) + 1, last or sys.maxsize)}" + ("" if last is None else f"/{last}"),
            "#" * filled + "-" * (_BAR_WIDTH - filled),
            *([f"{duration(seconds * (1 - fraction) / fraction)} left"] if fraction > 0 else []),
            *([str(self._last)] if self._last is not None else []),
        ]
        room = shutil.get_terminal_size().columns - 1
        return f"{'  '.join(parts)}  "[:room].rpartition("  ")[0]  # whole numbers alone
