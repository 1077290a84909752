"""What is trained: the data, a fresh model and the loss."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cmalight.bench.code import imported, is_own, is_table
from cmalight.bench.models import Run
from cmalight.errors import DataError
from cmalight.evaluation.randomness import random_state_kept, seed_everything
from cmalight.models import layered, paper_network, resnet

Task = Literal["regression", "classification"]
Arrays = tuple[Tensor, Tensor]
_RESNET = re.compile(r"resnet([0-9]{1,3})")
_PAPER = "paper:"
_ABSENT = "not here: "  # in `Run.data`, before the reason


@dataclass(frozen=True)
class Problem:
    """What is trained; a workload of a spec returns one.

    Attributes:
        make_model: Gives a fresh model; torch's generator is seeded before the call.
        loss_fn: `loss_fn(model(x), y)` is the mean loss of a batch.
        train: Inputs and targets.
        validation: Inputs and targets that no step sees.
        task: "classification" also measures the accuracy on the validation part.
    """

    make_model: Callable[[], nn.Module]
    loss_fn: Callable[[Any, Any], Tensor]
    train: Arrays
    validation: Arrays | None = None
    task: Task = "regression"

    def data_sha256(self) -> str:
        """Digest of the arrays, by which results on different data can be told apart.

        Returns:
            Hexadecimal digits.
        """
        from cmalight.datasets import digest_of

        arrays = (*self.train, *(self.validation or ()))
        return digest_of((f"{one.dtype} {tuple(one.shape)}", one.numpy()) for one in arrays)


def data_digest(dataset: str, workload: str | None = None) -> str | None:
    """What the key of a run says of data that the user brings; None for data sets of the package.

    The sha256 of the table, or of the arrays that the function gives; "not here: " and the reason if there are none.
    """
    try:
        if is_table(dataset):
            with Path(dataset.partition(":")[0]).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        if workload is None and not is_own(dataset):
            return None
        first, second = (_own_digest(dataset, workload) for _ in range(2))
    except (ValueError, OSError) as error:
        return f"{_ABSENT}{error}"
    if first != second:
        raise DataError(f"{workload or dataset} gives other arrays at every call; seed its random numbers")
    return first


def problem_of(run: Run) -> Problem:
    """The problem of a run; DataError if its data is not here, or not that which the run was planned with."""
    if (absent := absent_data(run)) is not None:
        raise DataError(absent)
    if run.workload is not None:
        problem, digest = _made_workload(run.workload)
        _refuse_changed(run, digest)
        return problem
    train, validation, task = _data(run)
    classes = int(max(part.max() for part in (train[1], validation[1]) if len(part))) + 1 if task != "regression" else 1
    return Problem(
        make_model=lambda: network_for(run.network, train[0].shape[1:], classes, run.network_options),
        loss_fn=nn.MSELoss() if task == "regression" else nn.CrossEntropyLoss(),
        train=train,
        validation=validation if len(validation[0]) else None,
        task=task,
    )


def absent_data(run: Run) -> str | None:
    """Why the data of a run is not on this machine, and what to do, in one sentence; None if it is."""
    if run.data is not None and run.data.startswith(_ABSENT):
        return run.data.removeprefix(_ABSENT)
    return None if run.data is not None or run.workload is not None else absent_dataset(run.dataset)


def absent_dataset(name: str) -> str | None:
    """What to do about a data set of the package that is not on this machine; None if it is, or needs no file."""
    from cmalight.datasets import dataset_info, where

    if where(dataset_info(name)) != "to download":
        return None
    base = name.partition(":")[0]
    return f"the data set {base} is not on this machine; get it by: cmalight datasets fetch {base}"


def network_for(name: str, shape: tuple[int, ...], outputs: int, options: dict[str, Any]) -> nn.Module:
    """A freshly initialised network by name, for samples of that shape: (features,) or (channels, height, width)."""
    features = int(np.prod(shape))
    is_picture = len(shape) == 3
    if is_own(name):
        made = imported(name)(features=features, outputs=outputs, **options)
        if not isinstance(made, nn.Module):
            raise TypeError(f"{name} returned a {type(made).__name__}; expected a torch.nn.Module")
        return made
    if match := _RESNET.fullmatch(name):
        if not is_picture:
            raise ValueError(f"{name} takes pictures, and the data is a table")
        return resnet(int(match[1]), **{"classes": outputs, "channels": shape[0], **options})
    network: nn.Module
    if name.startswith(_PAPER):
        if outputs > 1 or is_picture or options:
            raise ValueError(f"{name} is for regression on tables and takes no options")
        network = paper_network(name.removeprefix(_PAPER), features)
    else:
        network = layered(name, features, **{"outputs": outputs, **options})
    return nn.Sequential(nn.Flatten(), network) if is_picture else network


def _data(run: Run) -> tuple[Arrays, Arrays, Task]:
    from cmalight.datasets import load_dataset, register

    name = run.dataset
    if is_own(name):
        arrays, digest = _made_raw(name)
        _refuse_changed(run, digest)
        name = register("data of the spec", lambda: arrays).name
    elif is_table(name):
        _refuse_changed(run, data_digest(name))
    data = load_dataset(name, seed=run.split_seed, test_share=run.test_share)
    x_train, y_train, x_test, y_test = map(torch.as_tensor, (data.x_train, data.y_train, data.x_test, data.y_test))
    return (x_train, y_train), (x_test, y_test), data.task


def _refuse_changed(run: Run, digest: str | None) -> None:
    if run.data not in (None, digest):
        source = run.workload or run.dataset
        raise DataError(f"the data of {source} changed since the runs were planned; repeat the command")


def _own_digest(dataset: str, workload: str | None) -> str:
    return _made_raw(dataset)[1] if workload is None else _made_workload(workload)[1]


def _made_workload(source: str) -> tuple[Problem, str]:
    """The user's problem, and the digest of its arrays."""
    made = _made(source)
    if not isinstance(made, Problem):
        raise DataError(f"{source} returned a {type(made).__name__}; expected a cmalight.bench.Problem")
    try:
        return made, made.data_sha256()
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{source}: its data are no pairs of tensors that NumPy can read: {error}") from error


def _made_raw(source: str) -> tuple[tuple[Any, ...], str]:
    """The arrays of the user's data set, and the digest of their values."""
    from cmalight.datasets.entry import Entry
    from cmalight.datasets.own import Arrays as Source
    from cmalight.datasets.storage import raw_data

    arrays = _made(source)
    try:
        arrays = tuple(map(np.asarray, arrays))
        return arrays, raw_data(Entry(name=source, task=None, source=Source(lambda: arrays))).digest()
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{source} did not return arrays x, y or x, y, x_test, y_test: {error}") from error


def _made(source: str) -> Any:
    """What the user's function gives with the same random numbers every time; an error of it is a DataError."""
    with random_state_kept(None):
        seed_everything(0)
        try:
            return imported(source)()
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            raise DataError(f"{source} raised {type(error).__name__}: {error}") from error
