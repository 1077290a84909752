"""The history of a run: one record per epoch."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.errors import needed
from cmalight.files import write_atomically

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger("cmalight")

_HEADINGS = ("epoch", "seconds", "loss", "true", "validation", "metrics", "lr", "evaluations", "outcome")
_SHOWN = 5  # first and last epochs in a printed history


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

    def to_json(self) -> str:
        """The record as one line of JSON; a number that is not finite becomes null.

        Returns:
            JSON without a line break.
        """
        return json.dumps(_finite({**vars(self), "metrics": _finite(self.metrics)}), allow_nan=False)


_COLUMNS = tuple(one.name for one in fields(EpochRecord))


class History(list[EpochRecord]):
    """The records of a run, a list in the order of the epochs."""

    def __repr__(self) -> str:
        """A short table: the first and the last epochs."""
        if not self:
            return "History of 0 epochs"
        ends = list(self) if len(self) <= 2 * _SHOWN else [*self[:_SHOWN], *self[-_SHOWN:]]
        rows = [_cells(record) for record in ends]
        used = [number for number in range(len(_HEADINGS)) if any(row[number] for row in rows)]
        if len(ends) < len(self):
            rows.insert(_SHOWN, ["..."] * len(_HEADINGS))
        columns = [[_HEADINGS[number], *(row[number] for row in rows)] for number in used]
        padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
        return "\n".join("  ".join(line) for line in zip(*padded, strict=True))

    def to_pandas(self) -> pandas.DataFrame:
        """The history as a frame.

        Returns:
            One row per epoch; each metric is a column.

        Raises:
            ImportError: pandas is not installed.
        """
        with needed("History.to_pandas needs pandas", "data"):
            import pandas
        columns = [name for name in _COLUMNS if name != "metrics"]
        rows = [{**record.metrics, **{name: getattr(record, name) for name in columns}} for record in self]
        return pandas.DataFrame(rows, columns=[*columns, *(self[0].metrics if self else ())])

    def to_text(self, epochs: int) -> str:
        """The first epochs, column by column, as JSON in which NaN and Infinity stand for themselves.

        Args:
            epochs: How many.

        Returns:
            A text that keeps every number to its last bit.
        """
        first = self[:epochs]
        return json.dumps({name: [getattr(record, name) for record in first] for name in _COLUMNS})

    @classmethod
    def from_text(cls, text: str) -> History:
        """What `to_text` wrote.

        Args:
            text: From a checkpoint.

        Returns:
            The history.
        """
        columns = json.loads(text)
        rows = zip(*columns.values(), strict=True)
        return cls(EpochRecord(**dict(zip(columns, row, strict=True))) for row in rows)


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _cells(record: EpochRecord) -> list[str]:
    measured = [f"{value:.5g}" if value is not None else "" for value in (record.train_loss, record.validation_loss)]
    metrics = " ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
    numbers = [str(record.epoch), f"{record.seconds:.2f}", f"{record.batch_loss:.5g}", *measured, metrics]
    return [*numbers, f"{record.lr:.3g}", str(record.evaluations), record.outcome]


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
        try:
            self._write(b"".join(self._waiting))
        except OSError as error:
            problem = f"the last {len(self._waiting)} lines of {self._path} could not be written: {error.strerror}"
            if not self.problem:
                logger.warning("%s. Training goes on; the next epoch tries again.", problem)
            self.problem = problem
        else:
            self._waiting, self.problem = [], ""

    def _write(self, data: bytes) -> None:
        """Writes all of it, or cuts the file back to where it was."""
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                written = 0
                while written < len(data):
                    written += file.write(data[written:]) or 0
            except OSError:
                with contextlib.suppress(OSError):  # a pipe cannot be cut
                    file.truncate(end)
                raise
