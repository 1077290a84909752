"""From a run to what is trained: the data, a fresh model and the loss."""

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

from cmalight.bench.code import imported, is_own
from cmalight.bench.models import Run
from cmalight.models import layered, paper_network, resnet

Task = Literal["regression", "classification"]
Arrays = tuple[Tensor, Tensor]
_RESNET = re.compile(r"resnet([0-9]{1,3})")
_PAPER = "paper:"


@dataclass(frozen=True)
class Problem:
    """What is trained; a user's own workload returns one.

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


def problem_of(run: Run) -> Problem:
    """Load the data of a run.

    Args:
        run: What to train.

    Returns:
        The problem.
    """
    if run.workload is not None:
        from cmalight.bench.workloads import WORKLOADS

        make = imported(run.workload) if is_own(run.workload) else WORKLOADS[run.workload]
        made: Problem = make()
        return made
    train, validation, task = _data(run)
    classes = int(max(part.max() for part in (train[1], validation[1]) if len(part))) + 1 if task != "regression" else 1
    return Problem(
        make_model=lambda: network_for(run.network, train[0].shape[1:], classes, run.network_options),
        loss_fn=nn.MSELoss() if task == "regression" else nn.CrossEntropyLoss(),
        train=train,
        validation=validation if len(validation[0]) else None,
        task=task,
    )


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
    if run.target is not None:
        return _split(*_read_csv(Path(run.dataset), run.target, run.task), run, scale=True)
    if not is_own(run.dataset):
        from cmalight.datasets import load_dataset

        data = load_dataset(run.dataset, seed=run.split_seed, test_share=run.test_share)
        task: Task = "regression" if data.task == "regression" else "classification"
        train, test = (_tensors(x, y, task) for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)))
        return train, test, task
    arrays = [np.asarray(array) for array in imported(run.dataset)()]
    task = "classification" if np.issubdtype(arrays[1].dtype, np.integer) else "regression"
    if len(arrays) == 4:
        return _tensors(arrays[0], arrays[1], task), _tensors(arrays[2], arrays[3], task), task
    return _split(arrays[0], arrays[1], task, run)


def _read_csv(path: Path, target: str, task: Task | None) -> tuple[Any, Any, Task]:
    """Numbers as they are, text one-hot, missing numbers replaced by the median; rows without a target are left out."""
    import pandas

    table = pandas.read_csv(path)
    table = table[table[target].notna()]
    wanted, inputs = table[target], table.drop(columns=target)
    numbers = pandas.get_dummies(inputs, dtype=float)
    x = numbers.fillna(numbers.median()).to_numpy(np.float64)
    if task is None:
        task = "regression" if pandas.api.types.is_numeric_dtype(wanted) else "classification"
    y = wanted.to_numpy(np.float64) if task == "regression" else pandas.factorize(wanted, sort=True)[0]
    return x, y, task


def _split(x: Any, y: Any, task: Task, run: Run, *, scale: bool = False) -> tuple[Arrays, Arrays, Task]:
    order = np.random.default_rng(run.split_seed).permutation(len(x))
    count = max(1, round(run.test_share * len(x)))
    test, train = order[:count], order[count:]
    if scale:
        x = _standardised(x, train)
        y = _standardised(y, train) if task == "regression" else y
    return _tensors(x[train], y[train], task), _tensors(x[test], y[test], task), task


def _standardised(values: Any, rows: Any) -> Any:
    deviation = values[rows].std(0)
    return (values - values[rows].mean(0)) / np.where(deviation > 0, deviation, 1.0)


def _tensors(x: Any, y: Any, task: Task) -> Arrays:
    """float32 inputs; float32 targets in a column, or int64 classes."""
    inputs = torch.as_tensor(x).float()
    if task == "classification":
        return inputs, torch.as_tensor(y).long().reshape(-1)
    targets = torch.as_tensor(y).float()
    return inputs, targets.reshape(len(targets), -1)
