"""What the files of a results folder hold: checked as a whole when a file is read, so that nobody checks it again."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, cast

from cmalight.bench.spec.study import Definition, Plain
from cmalight.errors import needed

Recorded = Literal["done", "diverged", "failed", "crashed", "timed_out", "out_of_memory"]
# What is tried again when that is asked for: a run that diverged is a result.
WITHOUT_A_RESULT: tuple[Recorded, ...] = ("failed", "crashed", "timed_out", "out_of_memory")
Kind = TypeVar("Kind")
_SHOWN = 3
_LARGEST = 1 << 53  # that a frame of floats can hold
_NUMBERS_ARE_FINITE = {"allow_inf_nan": False}  # where pydantic looks for it


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What went wrong in a run."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where a run was; empty where that is not known."""

    __pydantic_config__ = _NUMBERS_ARE_FINITE

    host: str | None = None
    cpu: str | None = None
    cores: int | None = None
    concurrency: int | None = None
    load: float | None = None
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """The columns, an epoch at the same place in each; all are missing where no epoch was trained."""

    __pydantic_config__ = _NUMBERS_ARE_FINITE

    epoch: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    train_loss: list[float | None] = field(default_factory=list)
    test_loss: list[float | None] = field(default_factory=list)
    test_accuracy: list[float | None] = field(default_factory=list)
    f_tilde: list[float | None] = field(default_factory=list)
    lr: list[float | None] = field(default_factory=list)
    alpha: list[float | None] = field(default_factory=list)
    outcome: list[str] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in vars(self).items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of different lengths ({lengths})")
        if not all(0 <= number < _LARGEST for column in (self.epoch, self.evaluations) for number in column):
            raise ValueError(f"numbers of epochs or evaluations outside 0 to {_LARGEST}")


COLUMNS = tuple(column.name for column in fields(Epochs))


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one run went."""

    __pydantic_config__ = _NUMBERS_ARE_FINITE

    key: str
    run: Definition
    status: Recorded
    started: float
    finished: float
    environment: Environment
    epochs: Epochs
    error: Failure | None = None
    ended_by: str | None = None
    seconds: float | None = None
    compile_seconds: float | None = None
    initial_loss: float | None = None
    final_loss: float | None = None
    final_test_loss: float | None = None
    final_test_accuracy: float | None = None
    evaluations: int | None = None
    attempts: int | None = None
    data_sha256: str | None = None
    rounded: bool = False

    def __post_init__(self) -> None:
        if self.status == "done" and None in (self.seconds, self.final_loss, self.ended_by):
            raise ValueError("a run that is done has seconds, ended_by and final_loss")
        if self.status != "done" and self.error is None:
            raise ValueError("a run that is not done has an error")
        counts = (self.evaluations, self.attempts, self.environment.cores, self.environment.concurrency)
        if not all(count is None or 0 <= count < _LARGEST for count in counts):
            raise ValueError(f"a count outside 0 to {_LARGEST}")


@dataclass(frozen=True)
class DriverCall:
    """One call of the driver for a folder: its spec, the keys of its runs, and how many it ran at once."""

    spec: Plain
    keys: list[str]
    workers: int | None

    def __post_init__(self) -> None:
        if self.workers is not None and not 1 <= self.workers < _LARGEST:
            raise ValueError(f"{self.workers} workers")


@dataclass(frozen=True, kw_only=True)
class DriverCalls:
    """All of a folder."""

    calls: list[DriverCall]


@dataclass(frozen=True, kw_only=True)
class Running:
    """A run under way: where it is, its last true training loss, and the seconds on its clock."""

    __pydantic_config__ = _NUMBERS_ARE_FINITE

    key: str
    run: str
    epoch: int
    loss: float | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class FolderProgress:
    """How far the driver of a folder is."""

    __pydantic_config__ = _NUMBERS_ARE_FINITE

    running: list[Running]
    seconds_left: float | None


def checked(kind: type[Kind], content: Mapping[str, Any]) -> Kind:
    """The content as an object of that kind.

    Args:
        kind: one of the dataclasses of this module.
        content: as read from JSON; what the kind has no field for is ignored.

    Returns:
        The object.

    Raises:
        ValueError: with what is wrong where, in one line.
        ImportError: with what to install.
    """
    with needed("results are checked by pydantic", "bench"):
        import pydantic
    try:
        found: Kind = _adapter(cast(Any, kind)).validate_json(json.dumps(content), strict=True)
        return found
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except pydantic.ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors(include_url=False)]
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{'; '.join(wrong[:_SHOWN])}{more}") from error


@functools.cache
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind)
