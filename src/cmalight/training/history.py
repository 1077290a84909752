"""What happened, an epoch a record."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmalight.files import without_infinities, write_all

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger("cmalight")


@dataclass(frozen=True)
class EpochRecord:
    """One epoch; losses are means per sample, `seconds` and `evaluations` count from the start of the run."""

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

    def to_json(self) -> str:
        """One line; a number that is not finite becomes null."""
        return json.dumps(without_infinities(asdict(self)), allow_nan=False)


class History(Sequence[EpochRecord]):
    """The records of a run, in order."""

    def __init__(self, records: Sequence[EpochRecord] = ()) -> None:
        self._records = list(records)

    def append(self, record: EpochRecord) -> None:
        self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self._records)

    def to_pandas(self) -> pandas.DataFrame:
        """A row an epoch; metrics become columns of their own."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError('History.to_pandas needs pandas: pip install "cmalight[data]"') from error
        rows = []
        for record in self._records:
            row = asdict(record)
            metrics = row.pop("metrics")
            rows.append({**row, **metrics})
        columns = [f.name for f in fields(EpochRecord) if f.name != "metrics"]
        frame: pandas.DataFrame = pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=columns)
        return frame

    def to_plain(self) -> list[dict[str, Any]]:
        return [asdict(record) for record in self._records]

    @classmethod
    def from_plain(cls, plain: Sequence[dict[str, Any]]) -> History:
        return cls([EpochRecord(**record) for record in plain])


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
