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
        digest = hashlib.sha256()
        for array in (*self.train, *(self.validation or ())):
            digest.update(f"{array.dtype} {tuple(array.shape)}".encode())
            digest.update(array.contiguous().numpy().data)
        return digest.hexdigest()


def data_digest(dataset: str, workload: str | None = None) -> str | None:
    """What the key of a run says of data that the user brings.

    Args:
        dataset: As in a spec.
        workload: "file.py:name", if the run has no data set.

    Returns:
        sha256 of the table "file.csv:target=column", or of the arrays that "file.py:name" gives; "not here: " and the
        reason if there are none; None for data sets of the package.

    Raises:
        DataError: "file.py:name" gives other arrays when it is called again.
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
    """The problem of a run.

    Args:
        run: What to train.

    Returns:
        The problem.

    Raises:
        DataError: The data is not here, or is not the data that the run was planned with.
    """
    if (absent := absent_data(run)) is not None:
        raise DataError(absent)
    if run.workload is not None:
        problem = _made_workload(run.workload)
        _refuse_changed(run, problem.data_sha256())
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
    """Why the data of a run is not on this machine, and what to do; None if it is.

    Args:
        run: As it was planned.

    Returns:
        One sentence.
    """
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
    """A freshly initialised network by name.

    Args:
        name: As in a spec.
        shape: Of one sample: (features,) of a table, (channels, height, width) of a picture.
        outputs: Number of classes, 1 for regression.
        options: Keyword arguments of the network.

    Returns:
        The network.

    Raises:
        ValueError: If the network does not fit the data, or is not known.
        TypeError: If it does not know an option, or is not a `torch.nn.Module`.
    """
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
    if workload is None:
        return _made_raw(dataset)[1]
    problem = _made_workload(workload)
    try:
        return problem.data_sha256()
    except (TypeError, RuntimeError) as error:  # NumPy knows no bfloat16
        raise DataError(f"{workload}: its tensors cannot be read as arrays: {error}") from error


def _made_workload(source: str) -> Problem:
    made = _made(source)
    if not isinstance(made, Problem):
        raise DataError(f"{source} returned a {type(made).__name__}; expected a cmalight.bench.Problem")
    for name, part in {"train": made.train, "validation": made.validation}.items():
        if (name == "train" or part is not None) and not _are_samples(part):
            raise DataError(f"{source}: {name} must be two tensors, x and y, with as many rows and at least one")
    return made


def _are_samples(part: Any) -> bool:
    """Whether these are inputs and targets."""
    if not isinstance(part, tuple | list) or len(part) != 2:
        return False
    return all(isinstance(one, Tensor) and one.ndim > 0 for one in part) and len(part[0]) == len(part[1]) > 0


def _made_raw(source: str) -> tuple[tuple[Any, ...], str]:
    """The arrays of the user's data set, and the digest of their values."""
    from cmalight.datasets.own import Arrays as Source

    arrays = _made(source)
    if not isinstance(arrays, tuple):
        raise DataError(f"{source} returned a {type(arrays).__name__}; expected arrays x, y or x, y, x_test, y_test")
    try:
        arrays = tuple(map(np.asarray, arrays))
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{source} returned what is no array: {error}") from error
    _refuse_unusable(source, arrays)
    return arrays, Source(lambda: arrays).read(Path()).digest()


def _refuse_unusable(source: str, arrays: tuple[Any, ...]) -> None:
    """Raise for arrays that no run could use."""
    shapes = f"{source} returned arrays of the shapes {', '.join(str(one.shape) for one in arrays)}"
    if len(arrays) not in (2, 4) or any(x.ndim < 2 or x.dtype.kind not in "biuf" for x in arrays[::2]):
        raise DataError(f"{shapes}; expected x, y or x, y, x_test, y_test, where x are numbers with one row per sample")
    if any(not len(x) == y.size > 0 for x, y in zip(arrays[::2], arrays[1::2], strict=True)):
        raise DataError(f"{shapes}; expected at least one row, and one target for each")
    if any(one.dtype.kind == "f" and not np.isfinite(one).all() for one in arrays):
        raise DataError(f"{source} returned NaN or infinite values; fill or drop them")


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
