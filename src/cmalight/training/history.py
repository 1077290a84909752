"""The history of a run: one record per epoch."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
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
        evaluated_rows: Rows that the optimizer evaluated in this epoch, in full passes and on its sample.
        train_loss: The training loss over all data after the epoch, if it was measured.
        validation_loss: The loss on the validation data after the epoch, if there is any.
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
        row = asdict(self)
        return json.dumps(_finite({**row, "metrics": _finite(row["metrics"])}), allow_nan=False)


class History(Sequence[EpochRecord]):
    """The records of a run in order.

    Args:
        records: Records to begin with.
    """

    def __init__(self, records: Iterable[EpochRecord] = ()) -> None:
        self._records = list(records)

    def append(self, record: EpochRecord) -> None:
        """Add the record of one more epoch.

        Args:
            record: The figures of the epoch.
        """
        self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self._records)

    def __repr__(self) -> str:
        """A short table: the first and the last epochs."""
        if not self._records:
            return "History of 0 epochs"
        rows = [_cells(record) for record in self._records]
        used = [number for number in range(len(_HEADINGS)) if any(row[number] for row in rows)]
        shown = rows if len(rows) <= 2 * _SHOWN else [*rows[:_SHOWN], ["..."] * len(_HEADINGS), *rows[-_SHOWN:]]
        columns = [[_HEADINGS[number], *(row[number] for row in shown)] for number in used]
        padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
        return "\n".join("  ".join(line) for line in zip(*padded, strict=True))

    def to_rows(self) -> list[dict[str, Any]]:
        """The history as plain values.

        Returns:
            One dict per epoch.
        """
        return [asdict(record) for record in self._records]

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
        rows = [{**row.pop("metrics"), **row} for row in self.to_rows()]
        metrics = self._records[0].metrics if self._records else ()
        return pandas.DataFrame(rows, columns=[*columns, *metrics])


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _cells(record: EpochRecord) -> list[str]:
    measured = [f"{value:.5g}" if value is not None else "" for value in (record.train_loss, record.validation_loss)]
    metrics = " ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
    figures = [str(record.epoch), f"{record.seconds:.2f}", f"{record.batch_loss:.5g}", *measured, metrics]
    return [*figures, f"{record.lr:.3g}", str(record.evaluations), record.outcome]


class HistoryFile:
    """A file of JSON lines that grows with the history.

    Args:
        path: Of the file. It is replaced by the records that a resumed run has behind it.
        history: Those records.

    Attributes:
        trouble: Why the last lines are not in the file; empty where they are.
    """

    def __init__(self, path: Path, history: History) -> None:
        self._path = path
        write_atomically(path, "".join(record.to_json() + "\n" for record in history))
        self._waiting: list[bytes] = []
        self.trouble = ""

    def append(self, record: EpochRecord) -> None:
        """Add a line; lines that a full disk does not take are tried again with the next one."""
        self._waiting.append(record.to_json().encode() + b"\n")
        try:
            self._write(b"".join(self._waiting))
        except OSError as error:
            trouble = f"the last {len(self._waiting)} lines of {self._path} could not be written ({error.strerror})"
            if not self.trouble:
                logger.warning("%s. Training goes on; the next epoch tries again.", trouble)
            self.trouble = trouble
        else:
            self._waiting, self.trouble = [], ""

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
