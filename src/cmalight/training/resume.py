"""What a run writes into its checkpoints, and how it goes on from one."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.randomness import RandomSource, randomness_of
from cmalight.optim.host import EpochOptimizer
from cmalight.sealed import bytes_of, unreadable
from cmalight.training.checkpoints import checkpoint, content_forms
from cmalight.training.checkpoints.checkpoint import CheckpointError
from cmalight.training.checkpoints.forms import MisfitError
from cmalight.training.checkpoints.model_state import ModelState
from cmalight.training.data.objectives import Objectives
from cmalight.training.epochs.engine import ChosenEngine
from cmalight.training.records.best import Best
from cmalight.training.records.history import History
from cmalight.training.records.metrics import metric_name
from cmalight.training.settings import FitSettings

if TYPE_CHECKING:
    from cmalight.locks import Lock

logger = logging.getLogger("cmalight")

_OPTION = "option "  # before the name of an optimizer's, in what a run is known by


class Resumable(Protocol):
    """What is saved of a run, and set when it goes on."""

    model: nn.Module
    loss_fn: Any
    feed: Any
    validation: Any
    optimizer: Optimizer
    settings: FitSettings
    history: History
    best: Best
    next_lr: float
    direction_norm: float | None
    objectives: Objectives
    engine: ChosenEngine

    @property
    def seconds(self) -> float: ...


class RunCheckpoints:
    """Saves and resumes one run.

    A checkpoint is always the state between two epochs, so that going on from it repeats the run that was stopped.

    Attributes:
        trouble: why the last state could not be saved; empty where it was.
    """

    def __init__(self, run: Resumable, path: str | os.PathLike[str], interval: float) -> None:
        self._run = run
        self._path = Path(path)
        self._interval = interval
        self._saved_at = time.monotonic()
        self._epochs_saved = 0
        self._boundary: dict[str, Any] = {}
        self._identity = self._describe_run()  # now: loading a state adds to an optimizer's defaults
        self._lock: Lock | None = None
        self._is_tried = False
        self.trouble = ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other runs away from the file."""
        with checkpoint.owned(self._path) as self._lock:
            yield

    def resume(self) -> float:
        """Set the run to its last checkpoint, if there is one.

        Returns:
            The seconds of training behind it.

        Raises:
            CheckpointError: the file cannot be used, or what this run would save could not be read back.
        """
        checkpoint.require_readable(self._changing_state() | {"extra state": ModelState.of(self._run.model).extra})
        content = checkpoint.load_latest(self._path)
        if content is None:
            return 0.0
        try:
            content_forms.CHECKPOINT("the checkpoint", content)
        except MisfitError as error:
            raise self._misfit(error) from error
        self._require_the_same_run(content)
        self._put(content)
        self._epochs_saved = len(self._run.history)
        return float(content["seconds"])

    def _put(self, content: dict[str, Any]) -> None:
        """All of it, or nothing."""
        run = self._run
        before = ModelState.of(run.model).copied(), run.optimizer.state_dict()
        try:
            content_forms.require_consistent(content, run.model, run.optimizer)
            ModelState.from_plain(content["model"]).put(run.model)
            run.optimizer.load_state_dict(content["optimizer"])
            self._put_randomness(content["randomness"])
        except Exception as error:  # what is in a file can make a model, an optimizer or a generator raise anything
            before[0].put(run.model)
            run.optimizer.load_state_dict(before[1])
            raise self._misfit(error) from error
        run.history = History.from_plain(content["history"])
        run.best.set_plain(content["best"])
        run.next_lr, run.direction_norm = content["next_lr"], content["direction_norm"]
        run.objectives.load_states(content["objectives"])
        if content["engine"]["limits"] == self._limits():  # with others it is another run, and chooses anew
            run.engine.remember(content["engine"]["compiled"], content["engine"]["reason"])
        if isinstance(run.feed, TensorBatches):
            run.feed.set_epoch(content["feed_epoch"])

    def _put_randomness(self, saved: dict[str, Any]) -> None:
        if "numpy" in saved:
            import numpy as np  # noqa: F401 - its generator is a source only where it is imported
        here = {source.name: source for source in self._sources()}
        for name in here.keys() & saved.keys():
            here[name].check(saved[name])
            here[name].put(saved[name])
        if different := here.keys() ^ saved.keys():
            logger.warning(
                "%s and this run do not have the same random number generators (%s): the run goes on, but not as the "
                "one that was stopped. Make them before fit begins.",
                self._path,
                ", ".join(sorted(different)),
            )

    def _misfit(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"{self._path} cannot be gone on from: {_first_line(error)}. {checkpoint.advice(self._path)}"
        )

    def remember_boundary(self) -> None:
        """What an epoch that is broken off will have changed; the weights only where it may be judged in parts."""
        self._boundary = self._changing_state()
        optimizer = self._run.optimizer
        if isinstance(optimizer, EpochOptimizer) and optimizer.rule().judges_parts:
            weights = {"model": ModelState.of(self._run.model).to_plain()}
            self._boundary = copy.deepcopy(self._boundary | weights)

    def save_if_due(self) -> None:
        if self._lock is not None:
            self._lock.beat()
        if time.monotonic() - self._saved_at >= self._interval:
            self._save(self._changing_state())

    def save(self) -> None:
        """The state now, which is between two epochs."""
        if self._epochs_saved != len(self._run.history):
            self._save(self._changing_state())

    def save_boundary(self) -> None:
        """The state before the epoch that was broken off; the weights are back there already, or remembered."""
        self._save(self._boundary)

    def _save(self, changing: dict[str, Any]) -> None:
        """A disk that is full, or gone, does not end the run: it is tried again when the next save is due."""
        run = self._run
        self._saved_at = time.monotonic()
        if not all(bool(torch.isfinite(p).all()) for p in run.model.parameters()):
            return  # diverged: what was saved before is worth more
        content = {
            "identity": self._identity,
            "model": ModelState.of(run.model).to_plain(),
            "history": run.history.to_plain(),
            "best": run.best.to_plain(),
            "next_lr": run.next_lr,
            "direction_norm": run.direction_norm,
            "seconds": run.seconds,
            "engine": dict(zip(("compiled", "reason"), run.engine.choice(), strict=True), limits=self._limits()),
            **changing,
        }
        try:
            if not self._is_tried and (failed := unreadable(changing)):
                raise OSError(0, f"{', '.join(failed)} could not be read back")
            checkpoint.save(content, self._path)
        except OSError as error:
            self._note(error)
            return
        self._is_tried, self.trouble = True, ""
        self._epochs_saved = len(run.history)

    def _note(self, error: OSError) -> None:
        kept = f"it holds epoch {self._epochs_saved}" if self._epochs_saved else "there is none"
        trouble = f"the checkpoint {self._path} could not be written ({error.strerror or error}); {kept}"
        if not self.trouble:
            logger.warning("%s. The training goes on, and saving is tried again.", trouble)
        self.trouble = trouble

    def _limits(self) -> list[float | None]:
        rules = self._run.settings.rules
        return [rules.max_epochs, rules.time_limit]

    def _sources(self) -> tuple[RandomSource, ...]:
        run = self._run
        return randomness_of(run.model, loader=run.feed, loss_fn=run.loss_fn, optimizer=run.optimizer).sources

    def _changing_state(self) -> dict[str, Any]:
        run = self._run
        return {
            "optimizer": run.optimizer.state_dict(),
            "randomness": {source.name: source.get() for source in self._sources()},
            "feed_epoch": run.feed.epoch if isinstance(run.feed, TensorBatches) else 0,
            "objectives": run.objectives.states(),
        }

    def _describe_run(self) -> dict[str, str]:
        """What must be the same for a checkpoint to be this run's."""
        run, settings = self._run, self._run.settings
        return {
            "optimizer": type(run.optimizer).__name__,
            "loss": repr(run.loss_fn) if isinstance(run.loss_fn, nn.Module) else _name(run.loss_fn),
            "model": _digest(str(run.model), *((n, p.shape, p.dtype) for n, p in run.model.named_parameters())),
            "data": _fingerprint(run.feed),
            "batches": _batching(run.feed),
            "seed": str(settings.seed),
            "validation data": _fingerprint(run.validation),
            "measurements": str(
                (tuple(metric_name(metric) for metric in settings.metrics), settings.measure_train_loss)
            ),
            "best": str((settings.restore_best, settings.monitor)),
            **_options(run.optimizer),
        }

    def _require_the_same_run(self, content: dict[str, Any]) -> None:
        own, saved = self._identity, content["identity"]
        different = [name for name in {**own, **saved} if saved.get(name) != own.get(name)]
        if "optimizer" in different:  # then all its options are others, too
            different = [name for name in different if not name.startswith(_OPTION)]
        if different:
            was = "; ".join(self._explained(name, content) for name in different)
            raise CheckpointError(
                f"{self._path} is the checkpoint of another run: {was}. "
                "Give another path, or remove the file to begin anew."
            )

    def _explained(self, name: str, content: dict[str, Any]) -> str:
        """What differs, in words rather than by checksums where there are any."""
        if name == "model":
            return _another_model(ModelState.from_plain(content["model"]), self._run.model)
        was, now = (identity.get(name, "none") for identity in (content["identity"], self._identity))
        if name.endswith("data") and was.partition("#")[0] == now.partition("#")[0]:
            return f"the {name} has the same shape, and other values"
        return f"{name.removeprefix(_OPTION)} was {was.partition(' #')[0]}, now {now.partition(' #')[0]}"


def _another_model(saved: ModelState, model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        was = saved.parameters.get(name)
        if was is not None and was.shape != parameter.shape:
            if parameter.dim() == was.dim() == 2 and len(was) == len(parameter):
                return f"the model has another shape: {was.shape[1]} -> {parameter.shape[1]} inputs of {name}"
            return f"the model has another shape: {name} was {tuple(was.shape)}, now {tuple(parameter.shape)}"
    if saved.parameters.keys() != dict(model.named_parameters()).keys():
        return f"the model has other parameters: it had {len(saved.parameters)}, now {len(list(model.parameters()))}"
    return "the model has other layers, with weights of the same shapes"


def _fingerprint(feed: Any) -> str:
    """Tensors in memory by their content; of another loader only what can be seen without iterating it."""
    if feed is None:
        return "none"
    tensors = getattr(feed, "tensors", getattr(getattr(feed, "dataset", None), "tensors", None))
    if tensors is not None:
        return f"{[tuple(t.shape) for t in tensors]} #{_digest(*tensors)}"
    return f"{_name(feed)} of {_length(getattr(feed, 'dataset', feed))}"


def _batching(feed: Any) -> str:
    """How the batches are made; of a DataLoader its batch size and the kind of its sampler."""
    if isinstance(feed, TensorBatches):
        return f"{feed.batch_size}, {feed.order}, seed {feed.seed}"
    return f"{getattr(feed, 'batch_size', None)}, {_name(getattr(feed, 'sampler', None))}, {_length(feed)} batches"


def _options(optimizer: Optimizer) -> dict[str, str]:
    """Of every group, parameters and the state of our control aside."""
    several = len(optimizer.param_groups) > 1
    return {
        f"{_OPTION}{name}{f' of group {number}' if several else ''}": str(value)
        for number, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name in optimizer.defaults
    }


def _name(thing: object) -> str:
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def _length(thing: Any) -> str:
    try:
        return str(len(thing))
    except TypeError:
        return "unknown length"


def _digest(*parts: object) -> str:
    checksum = hashlib.blake2b(digest_size=8)
    for part in parts:
        checksum.update(bytes_of(part) if isinstance(part, Tensor) else str(part).encode())
    return checksum.hexdigest()


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__).rstrip(".")[:300]
