"""What happened, one record per epoch."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.errors import needed
from cmalight.files import without_infinities, write_all

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger("cmalight")

_HEADINGS = ("epoch", "seconds", "loss", "true", "validation", "metrics", "lr", "evaluations", "outcome")
_SHOWN = 5  # first and last epochs in a table


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a run; losses are means per sample.

    Attributes:
        epoch: its number, from 0.
        seconds: of training since the start of the run, measuring left out.
        f_tilde: the loss that its own batches gave, on the way.
        lr: the step size that it was run with.
        alpha: the step size that was kept, 0 for an epoch that was undone; None under optimizers without a control.
        outcome: what the control decided, `uncontrolled` under optimizers without one.
        evaluations: of the full objective that were made for it; they sum to `FitResult.evaluations`.
        train_loss: the true training loss after it, where it was measured.
        validation_loss: the loss on the validation data after it, where there is any.
        metrics: on the validation data, by name.
        next_lr: the step size of the next epoch.
        phi: the loss that the epoch had to beat; None where there was none.
    """

    epoch: int
    seconds: float
    f_tilde: float
    lr: float
    alpha: float | None
    outcome: str
    evaluations: int
    train_loss: float | None = None
    validation_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    next_lr: float = math.nan
    phi: float | None = None

    def to_json(self) -> str:
        """One line; a number that is not finite becomes null.

        Returns:
            JSON.
        """
        return json.dumps(without_infinities(asdict(self)), allow_nan=False)


class History(Sequence[EpochRecord]):
    """The records of a run, in order: a sequence.

    Args:
        records: to begin with.
    """

    def __init__(self, records: Sequence[EpochRecord] = ()) -> None:
        self._records = list(records)

    def append(self, record: EpochRecord) -> None:
        """One epoch more.

        Args:
            record: its figures.
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
        rows = [_row(record) for record in self._records]
        used = [number for number in range(len(_HEADINGS)) if any(row[number] for row in rows)]
        gap = [["..."] * len(_HEADINGS)]
        shown = rows if len(rows) <= 2 * _SHOWN else rows[:_SHOWN] + gap + rows[-_SHOWN:]
        columns = [[_HEADINGS[number], *(row[number] for row in shown)] for number in used]
        widths = [max(map(len, column)) for column in columns]
        lines = zip(*columns, strict=True)
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        )

    def to_pandas(self) -> pandas.DataFrame:
        """One row per epoch; metrics become columns of their own.

        Returns:
            The frame.
        """
        with needed("History.to_pandas needs pandas", "data"):
            import pandas
        rows = []
        for record in self._records:
            row = asdict(record)
            metrics = row.pop("metrics")
            rows.append({**row, **metrics})
        columns = [f.name for f in fields(EpochRecord) if f.name != "metrics"]
        return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=columns)

    def to_plain(self) -> list[dict[str, Any]]:
        """One dict of plain values per epoch.

        Returns:
            One after the other.
        """
        return [asdict(record) for record in self._records]

    @classmethod
    def from_plain(cls, plain: Sequence[dict[str, Any]]) -> History:
        """What `to_plain` gave.

        Args:
            plain: one dict per epoch.

        Returns:
            The history.
        """
        return cls([EpochRecord(**record) for record in plain])


def _row(record: EpochRecord) -> list[str]:
    measured = [f"{value:.5g}" if value is not None else "" for value in (record.train_loss, record.validation_loss)]
    metrics = " ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
    figures = [str(record.epoch), f"{record.seconds:.2f}", f"{record.f_tilde:.5g}", *measured, metrics]
    return [*figures, f"{record.lr:.3g}", str(record.evaluations), record.outcome]


class HistoryFile:
    """A file of JSON lines that grows with the history; begins with what a resumed run has behind it.

    Attributes:
        trouble: why the last lines are not in it; empty where they are.
    """

    def __init__(self, path: str | os.PathLike[str], history: History) -> None:
        self._path = Path(path)
        write_all({self._path: "".join(record.to_json() + "\n" for record in history).encode()})
        self._waiting: list[bytes] = []
        self.trouble = ""

    def append(self, record: EpochRecord) -> None:
        """Whole lines only; what a full disk does not take is tried again with the next line."""
        self._waiting.append(record.to_json().encode() + b"\n")
        try:
            self._write(b"".join(self._waiting))
        except OSError as error:
            trouble = f"the last {len(self._waiting)} lines of {self._path} could not be written ({error.strerror})"
            if not self.trouble:
                logger.warning("%s. The training goes on, and writing is tried again.", trouble)
            self.trouble = trouble
        else:
            self._waiting, self.trouble = [], ""

    def _write(self, data: bytes) -> None:
        """All of it, or nothing."""
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
