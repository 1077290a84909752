"""What a run writes into its checkpoints, and how it goes on from one."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.randomness import sources
from cmalight.sealed import bytes_of
from cmalight.training import checkpoint
from cmalight.training.best import get_state, put_state
from cmalight.training.history import History

if TYPE_CHECKING:
    from cmalight.training.run import Run, Settings


class RunCheckpoints:
    """Saves and resumes one run.

    A checkpoint is always the state between two epochs, so that going on from it repeats the run that was stopped.
    """

    def __init__(self, run: Run, settings: Settings) -> None:
        if settings.checkpoint is None:
            raise ValueError("RunCheckpoints needs a path")
        self._run = run
        self._path = Path(settings.checkpoint)
        self._interval = settings.checkpoint_seconds
        self._saved_at = time.monotonic()
        self._epochs_saved = 0
        self._boundary: dict[str, Any] = {}
        self._identity = self._describe_run()  # now: loading a state adds to an optimizer's defaults

    def resume(self) -> float:
        """Set the run to its last checkpoint, if there is one; gives the training time behind it."""
        content = checkpoint.load_latest(self._path)
        if content is None:
            return 0.0
        self._require_the_same_run(content["identity"])
        run = self._run
        put_state(run.model, content["model"])
        run.optimizer.load_state_dict(content["optimizer"])
        run.history = History.from_plain(content["history"])
        run.best.set_plain(content["best"])
        run.next_lr, run.direction_norm = content["next_lr"], content["direction_norm"]
        if isinstance(run.feed, TensorBatches):
            run.feed.set_epoch(content["feed_epoch"])
        for source in sources(run.model, run.feed):
            if source.name in content["randomness"]:
                source.put(content["randomness"][source.name])
        self._epochs_saved = len(run.history)
        return float(content["seconds"])

    def remember_boundary(self) -> None:
        """What an epoch that is broken off will have changed, weights aside."""
        self._boundary = self._changing_state()

    def save_if_due(self) -> None:
        if time.monotonic() - self._saved_at >= self._interval:
            self._save(self._changing_state())

    def save(self) -> None:
        """The state now, which is between two epochs."""
        if self._epochs_saved != len(self._run.history):
            self._save(self._changing_state())

    def save_boundary(self) -> None:
        """The state before the epoch that was broken off; its weights are back there already."""
        self._save(self._boundary)

    def _save(self, changing: dict[str, Any]) -> None:
        run = self._run
        content = {
            "identity": self._identity,
            "model": get_state(run.model),
            "history": run.history.to_plain(),
            "best": run.best.to_plain(),
            "next_lr": run.next_lr,
            "direction_norm": run.direction_norm,
            "seconds": run.seconds,
            **changing,
        }
        checkpoint.save(content, self._path)
        self._saved_at = time.monotonic()
        self._epochs_saved = len(run.history)

    def _changing_state(self) -> dict[str, Any]:
        run = self._run
        return {
            "optimizer": run.optimizer.state_dict(),
            "randomness": {source.name: source.get() for source in sources(run.model, run.feed)},
            "feed_epoch": run.feed.epoch if isinstance(run.feed, TensorBatches) else 0,
        }

    def _describe_run(self) -> dict[str, str]:
        """What must be the same for a checkpoint to be this run's."""
        run, settings = self._run, self._run.settings
        return {
            "optimizer": type(run.optimizer).__name__,
            "optimizer options": _options(run.optimizer),
            "loss": repr(run.loss_fn) if isinstance(run.loss_fn, nn.Module) else _name(run.loss_fn),
            "model": _digest(str(run.model), *((n, p.shape, p.dtype) for n, p in run.model.named_parameters())),
            "data": _fingerprint(run.feed),
            "batches": _batching(run.feed),
            "seed": str(settings.seed),
            "validation data": _fingerprint(run.validation),
            "measurements": str((settings.metrics, settings.measure_train_loss)),
            "best": str((settings.restore_best, settings.monitor)),
        }

    def _require_the_same_run(self, saved: dict[str, str]) -> None:
        own = self._identity
        different = [name for name in own if saved.get(name) != own[name]]
        if different:
            was = "; ".join(f"{name} was {saved.get(name)}, now {own[name]}" for name in different)
            raise checkpoint.CheckpointError(
                f"{self._path} is the checkpoint of another run: {was}. "
                "Give another path, or remove the file to begin anew."
            )


def _fingerprint(feed: Any) -> str:
    """Tensors in memory by their content; of another loader only what can be seen without iterating it."""
    if feed is None:
        return "none"
    tensors = getattr(feed, "tensors", getattr(getattr(feed, "dataset", None), "tensors", None))
    if tensors is not None:
        return f"{[tuple(t.shape) for t in tensors]} {_digest(*tensors)}"
    return f"{_name(feed)} of {_length(getattr(feed, 'dataset', feed))}"


def _batching(feed: Any) -> str:
    """How the batches are made; of a DataLoader its batch size and the kind of its sampler."""
    if isinstance(feed, TensorBatches):
        return f"{feed.batch_size}, {feed.order}, seed {feed.seed}"
    return f"{getattr(feed, 'batch_size', None)}, {_name(getattr(feed, 'sampler', None))}, {_length(feed)} batches"


def _options(optimizer: Optimizer) -> str:
    """Of every group, parameters and the state of our control aside."""
    return str(
        [[(k, str(v)) for k, v in sorted(group.items()) if k in optimizer.defaults] for group in optimizer.param_groups]
    )


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
