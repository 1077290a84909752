"""A network for a table in one call, and its predictions in another: what `cmalight train` and `predict` do."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from cmalight.errors import unknown_name
from cmalight.files import check_outputs, write_all
from cmalight.models import layered, parse_size
from cmalight.tables.encoding import ClassTarget
from cmalight.tables.reading import read_table
from cmalight.tables.table import Reading, Table
from cmalight.tabular.data import Pair, Prepared, TableChoices, is_file, prepare
from cmalight.tabular.model import Predictions, TabularModel, Unknown, load_model, model_to_bytes
from cmalight.tabular.plot import check_picture, losses_over_seconds
from cmalight.training.feed import auto_batch_size
from cmalight.training.fitting import FitResult, fit
from cmalight.training.optimizers import SOLVERS
from cmalight.training.stopping import Status
from cmalight.training.threads import one_thread_for_small_steps

__all__ = [
    "Outputs",
    "Predictions",
    "TableChoices",
    "TabularModel",
    "TabularResult",
    "load_model",
    "predict_table",
    "train_on_table",
]

logger = logging.getLogger("cmalight.tabular")


@dataclass(frozen=True)
class Outputs:
    """Files to write once the training is over; None writes none."""

    save: str | Path | None = None
    history: str | Path | None = None
    plot: str | Path | None = None

    def check(self, source: str | Path | Table, checkpoint: str | Path | None) -> None:
        inputs = [Path(source)] if not isinstance(source, Table) and is_file(source) else []
        paths = {"--save": self.save, "--history": self.history, "--plot": self.plot, "--checkpoint": checkpoint}
        check_outputs({option: Path(path) for option, path in paths.items() if path is not None}, inputs)
        if self.plot is not None:
            check_picture(Path(self.plot))


@dataclass(frozen=True)
class TabularResult:
    """The trained model, how the training went, and how good it is on the test rows."""

    model: TabularModel
    fit: FitResult
    scores: dict[str, float]

    @property
    def interrupted(self) -> bool:
        return self.fit.status is Status.INTERRUPTED


def train_on_table(
    source: str | Path | Table,
    choices: TableChoices | None = None,
    *,
    net: str = "1x50",
    optimizer: str = "auto",
    lr: float | None = None,
    batch_size: int | Literal["auto"] = "auto",
    max_epochs: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | Path | None = None,
    outputs: Outputs | None = None,
    progress: bool = False,
) -> TabularResult:
    """Trains an [L x N] network on a file, a table or a data set of the registry.

    Nothing is written before the training is over, but for the checkpoint. A training stopped by Ctrl-C writes what it
    has; one that diverged is an error and writes nothing.

    Args:
        source: a csv, parquet or npz file, a table, or the name of a data set.
        lr: None takes the optimizer's own.
        batch_size: "auto" makes about 50 batches an epoch, of 8 to 128 rows.
        max_epochs: None is 100, or no limit where there is a time limit.
    """
    choices, outputs = choices or TableChoices(), outputs or Outputs()
    parse_size(net)
    if optimizer not in SOLVERS:
        raise ValueError(unknown_name("optimizer", optimizer, SOLVERS))
    outputs.check(source, checkpoint)
    prepared = prepare(source, choices)
    network = _network(net, prepared, choices.seed)
    if batch_size == "auto":
        batch_size = auto_batch_size(len(prepared.training[0]))
    with one_thread_for_small_steps(network, batch_size):
        result = fit(
            network,
            _loss(prepared),
            prepared.training,
            optimizer=optimizer,
            optimizer_options={} if lr is None else {"lr": lr},
            batch_size=batch_size,
            seed=choices.seed,
            max_epochs=100 if max_epochs is None and time_limit is None else max_epochs,
            time_limit=time_limit,
            validation=prepared.test,
            metrics=_metrics(prepared) if prepared.test is not None else (),
            measure_train_loss=True,
            checkpoint=checkpoint,
            progress=progress,
        )
    if result.status is Status.DIVERGED:
        raise ValueError(f"training diverged: {result.reason}; give a smaller --lr, or --optimizer auto")
    if not result.epochs and result.status is not Status.INTERRUPTED:
        raise ValueError(f"no epoch was finished ({result.reason}); give it more time")
    model = TabularModel(network, prepared.features, prepared.target, choices.drop, choices.reading.missing)
    scores = _scores(model, prepared.test)
    _announce(result, scores)
    if result.epochs:
        _write(outputs, model, result, prepared)
    return TabularResult(model, result, scores)


def predict_table(
    model: str | Path | TabularModel,
    source: str | Path | Table,
    *,
    drop: tuple[str, ...] = (),
    reading: Reading | None = None,
    unknown: Unknown = "zeros",
    out: str | Path | None = None,
) -> Predictions:
    """Predicts every row of a file or table with a model, or the file of one; `out` is a csv file to write."""
    if out is not None:
        check_outputs({"--out": Path(out)}, [Path(path) for path in (model, source) if isinstance(path, str | Path)])
    if not isinstance(model, TabularModel):
        model = load_model(model)
    table = source if isinstance(source, Table) else read_table(source, model.reading(reading or Reading()))
    predictions = model.predict(table.without(drop), unknown=unknown)
    if out is not None:
        write_all({Path(out): predictions.to_csv().encode()})
    return predictions


def _network(net: str, prepared: Prepared, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return layered(net, prepared.features.width, outputs=prepared.target.outputs)


def _loss(prepared: Prepared) -> nn.Module:
    return nn.CrossEntropyLoss() if isinstance(prepared.target, ClassTarget) else nn.MSELoss()


def _metrics(prepared: Prepared) -> tuple[str, ...]:
    return ("accuracy",) if isinstance(prepared.target, ClassTarget) else ("r2",)


def _scores(model: TabularModel, test: Pair | None) -> dict[str, float]:
    """On the test rows, in the units of the data."""
    if test is None:
        return {}
    outputs, wanted = model.outputs(test[0]), np.asarray(test[1])
    if isinstance(model.target, ClassTarget):
        return {"accuracy": float((outputs.argmax(axis=1) == wanted).mean())}
    truth = model.target.decode(wanted.astype(np.float64))
    squares = float(((model.target.decode(outputs) - truth) ** 2).sum())
    spread = float(((truth - truth.mean()) ** 2).sum())
    r2 = 1 - squares / spread if spread > 0 else math.nan
    return {"r2": r2, "root mean squared error": math.sqrt(squares / len(truth))}


def _announce(result: FitResult, scores: dict[str, float]) -> None:
    logger.info("training: %s epochs in %.1f s, %s", result.epochs, result.seconds, result.reason)
    if scores:
        logger.info("test rows: %s", ", ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def _write(outputs: Outputs, model: TabularModel, result: FitResult, prepared: Prepared) -> None:
    contents: dict[Path, bytes] = {}
    if outputs.save is not None:
        contents[Path(outputs.save)] = model_to_bytes(model)
    if outputs.history is not None:
        contents[Path(outputs.history)] = "".join(f"{record.to_json()}\n" for record in result.history).encode()
    if outputs.plot is not None:
        contents[Path(outputs.plot)] = _picture(Path(outputs.plot), result, prepared)
    write_all(contents)
    for path in contents:
        logger.info("written: %s", path)


def _picture(path: Path, result: FitResult, prepared: Prepared) -> bytes:
    loss = "cross entropy" if isinstance(prepared.target, ClassTarget) else "squared error (scaled target)"
    title = f"{Path(prepared.source).name}: {prepared.target.name}"
    return losses_over_seconds(result.history, title=title, kind=path.suffix[1:].lower(), loss=loss)
