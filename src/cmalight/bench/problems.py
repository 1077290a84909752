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

from cmalight.bench.code import imported, is_table, is_user_code
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


def data_digest(source: str, *, workload: bool = False) -> str | None:
    """What the key of a run says of data that the user brings; None for data sets of the package.

    The sha256 of the table, or of the arrays that the function gives; "not here: " and the reason if there are none.
    """
    try:
        if is_table(source):
            with Path(source.partition(":")[0]).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        if not is_user_code(source):
            return None
        first, second = (_brought(source, workload=workload)[1] for _ in range(2))
    except (ValueError, OSError) as error:
        return f"{_ABSENT}{error}"
    if first != second:
        raise DataError(f"{source} gives other arrays at every call; seed its random numbers")
    return first


def problem_of(run: Run) -> Problem:
    """The problem of a run; DataError if its data is not here, or not that which the run was planned with."""
    from cmalight.datasets import load_dataset, register

    if (absent := absent_data(run)) is not None:
        raise DataError(absent)
    source = run.workload or run.dataset
    workload = run.workload is not None
    made, digest = _brought(source, workload=workload) if is_user_code(source) else (None, data_digest(source))
    if run.data not in (None, digest):
        raise DataError(f"the data of {source} changed since the runs were planned; repeat the command")
    if isinstance(made, Problem):
        return made
    name = source if made is None else register("data of the spec", lambda: made).name
    data = load_dataset(name, seed=run.split_seed, test_fraction=run.test_fraction)
    x_train, y_train, x_test, y_test = map(torch.as_tensor, (data.x_train, data.y_train, data.x_test, data.y_test))
    is_regression = data.task == "regression"
    outputs = 1 if is_regression else int(max(part.max() for part in (y_train, y_test) if len(part))) + 1
    return Problem(
        make_model=lambda: network_for(run.network, x_train.shape[1:], outputs, run.network_options),
        loss_fn=nn.MSELoss() if is_regression else nn.CrossEntropyLoss(),
        train=(x_train, y_train),
        validation=(x_test, y_test) if len(x_test) else None,
        task=data.task,
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
    if is_user_code(name):
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


def _brought(source: str, *, workload: bool) -> tuple[Any, str]:
    """What the user's function gives, with the same random numbers every time, and the digest of its arrays."""
    from cmalight.datasets.entry import Entry
    from cmalight.datasets.storage import raw_data
    from cmalight.datasets.user import Arrays as Source

    with random_state_kept(None):
        seed_everything(0)
        try:
            made = imported(source)()
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            raise DataError(f"{source} raised {type(error).__name__}: {error}") from error
    if workload and not isinstance(made, Problem):
        raise DataError(f"{source} returned a {type(made).__name__}; expected a cmalight.bench.Problem")
    try:
        if workload:
            return made, made.data_sha256()
        arrays = tuple(map(np.asarray, made))
        return arrays, raw_data(Entry(name=source, task=None, source=Source(lambda: arrays))).digest()
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        wrong = ": its data are no pairs of tensors that NumPy can read"
        wrong = wrong if workload else " did not return arrays x, y or x, y, x_test, y_test"
        raise DataError(f"{source}{wrong}: {error}") from error
