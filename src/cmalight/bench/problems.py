"""What is trained: the data, a fresh model and the loss."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
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


def dataset_problem(run: Run) -> Problem:
    """Load the data of a run on a data set.

    Args:
        run: What to train.

    Returns:
        The problem.
    """
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
    from cmalight.datasets import load_dataset, register

    name = run.dataset
    if is_own(name):
        name = register("data of the spec", imported(name)).name
    data = load_dataset(name, seed=run.split_seed, test_share=run.test_share)
    train, test = ((torch.as_tensor(x), torch.as_tensor(y)) for x, y in _parts(data))
    return train, test, data.task


def _parts(data: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (data.x_train, data.y_train), (data.x_test, data.y_test)
