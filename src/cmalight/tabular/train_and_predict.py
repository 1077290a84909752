"""A network for a table in one call, and its predictions in another: what `cmalight train` and `predict` do."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from cmalight.errors import DataError, check_choice, unknown_name
from cmalight.files import check_outputs, write_all
from cmalight.models import layered, parse_size
from cmalight.models.layered import ACTIVATIONS
from cmalight.optim import CMA, CMALight
from cmalight.tables.reading import read_table
from cmalight.tables.splitting import split_rows
from cmalight.tables.table import Reading, Table
from cmalight.tables.targets import ClassTarget
from cmalight.tabular.data import Pair, Prepared, TableChoices, is_file, prepare
from cmalight.tabular.model import Predictions, TabularModel, Unknown
from cmalight.tabular.model_file import load_model, model_to_bytes
from cmalight.tabular.plot import check_picture, training_picture
from cmalight.tabular.scores import Scores, guess_of, scores_of
from cmalight.training.data.feed import auto_batch_size
from cmalight.training.data.weights import ClassWeighted
from cmalight.training.fitting import FitResult, fit
from cmalight.training.records.stopping import Status
from cmalight.training.solvers.optimizers import SOLVERS as OPTIMIZERS

logger = logging.getLogger("cmalight.tabular")

_SHARE_ASIDE = 0.1


@dataclass(frozen=True)
class Outputs:
    """Files to write once the training is over; None writes none.

    Attributes:
        save: the model.
        history: one line of JSON per epoch.
        plot: a picture of the training.
    """

    save: str | Path | None = None
    history: str | Path | None = None
    plot: str | Path | None = None

    def check(self, source: str | Path | Table, checkpoint: str | Path | None) -> None:
        """Finds out before the training what would make the writing fail after it.

        Args:
            source: that is read, and must not be overwritten.
            checkpoint: that is written, too.

        Raises:
            ValueError: if a path is taken, or names no kind of picture.
            OSError: if a file cannot be written.
        """
        inputs = [Path(source)] if not isinstance(source, Table) and is_file(source) else []
        paths = {"save": self.save, "history": self.history, "plot": self.plot, "checkpoint": checkpoint}
        check_outputs({option: Path(path) for option, path in paths.items() if path is not None}, inputs)
        if self.plot is not None:
            check_picture(Path(self.plot))


@dataclass(frozen=True)
class TabularResult:
    """What `train_on_table` gives.

    Attributes:
        model: that was trained.
        fit: how the training went.
        scores: on the test rows; None where there are none.
    """

    model: TabularModel
    fit: FitResult
    scores: Scores | None

    @property
    def interrupted(self) -> bool:
        """Whether the training was ended by Ctrl-C."""
        return self.fit.status is Status.INTERRUPTED


def train_on_table(
    source: str | Path | Table,
    choices: TableChoices | None = None,
    *,
    net: str = "1x50",
    activation: str = "sigmoid",
    optimizer: str = "auto",
    optimizer_options: Mapping[str, Any] | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    class_weight: Literal["balanced"] | None = None,
    batch_size: int | Literal["auto"] = "auto",
    max_epochs: int | None = None,
    time_limit: float | None = None,
    patience: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    checkpoint: str | Path | None = None,
    outputs: Outputs | None = None,
    progress: bool = False,
) -> TabularResult:
    r"""Trains an [L x N] network on a file, a table or a data set of the registry.

    Nothing is written before the training is over, but for the checkpoint. A training stopped by Ctrl-C writes what it
    has; one that diverged is an error and writes nothing.

    Args:
        source: a csv, parquet or npz file, a table, or the name of a data set.
        choices: what is to be learnt from it.
        net: "LxN", L hidden layers of N neurons.
        activation: of the hidden neurons: "sigmoid", "tanh", "relu", "gelu" or "silu".
        optimizer: a name that `cmalight.fit` knows.
        optimizer_options: for the optimizer, beside `lr` and `weight_decay`.
        lr: None takes the optimizer's own.
        weight_decay: None takes the optimizer's own.
        class_weight: "balanced" counts the rows of rare classes more, so that all classes weigh the same.
        batch_size: "auto" makes about 50 batches per epoch, of 8 to 128 rows.
        max_epochs: None is 100, or no limit where there is a time limit.
        time_limit: seconds of training.
        patience: keep a tenth of the training rows aside, stop after so many epochs without a better loss on them, and
            end on the best weights.
        device: "cpu", "cuda" or "mps".
        threads: of torch on the CPU; None takes one where steps are small.
        checkpoint: a file to save to on the way; the same call goes on from it.
        outputs: files to write in the end.
        progress: show a bar.

    Returns:
        The model, on the CPU, with its scores.

    Raises:
        DataError: the data is not what it should be.
        ValueError: an argument is not what it should be, or the training diverged.

    Example:
        >>> from pathlib import Path
        >>> from cmalight.tabular import Outputs, TableChoices, predict_table, train_on_table
        >>> rows = "".join(f"{n},{'red' if n % 2 else 'blue'},{3 * n + n % 2}\n" for n in range(80))
        >>> _ = Path("table.csv").write_text("size,colour,price\n" + rows)
        >>> choices, outputs = TableChoices(target="price"), Outputs(save="prices.pt")
        >>> result = train_on_table("table.csv", choices, max_epochs=60, outputs=outputs)
        >>> result.scores.values["r2"] > 0.9
        True
        >>> predict_table("prices.pt", "table.csv").values.shape
        (80,)
    """
    choices, outputs = choices or TableChoices(), outputs or Outputs()
    parse_size(net)
    check_choice("activation", activation, ACTIVATIONS)
    if optimizer not in OPTIMIZERS:
        raise ValueError(unknown_name("optimizer", optimizer, OPTIMIZERS))
    _check_device(device)
    outputs.check(source, checkpoint)
    prepared = prepare(source, choices)
    training, validation = prepared.training, prepared.test
    if patience is not None:
        training, validation = _keep_aside(prepared, choices.seed)
    network = _network(net, activation, prepared, choices.seed).to(device)
    if batch_size == "auto":
        batch_size = auto_batch_size(len(training[0]))
    named = {name: value for name, value in (("lr", lr), ("weight_decay", weight_decay)) if value is not None}
    if twice := sorted(named.keys() & (optimizer_options or {}).keys()):
        raise ValueError(f"{twice[0]} is given twice, also among the options of the optimizer; leave one out")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has stalled", category=RuntimeWarning)  # said below
        result = fit(
            network,
            _loss(prepared, class_weight).to(device),
            training,
            optimizer=optimizer,
            optimizer_options={**(optimizer_options or {}), **named},
            batch_size=batch_size,
            seed=choices.seed,
            max_epochs=100 if max_epochs is None and time_limit is None else max_epochs,
            time_limit=time_limit,
            patience=patience,
            restore_best=patience is not None,
            validation=validation,
            metrics=_metrics(prepared) if validation is not None else (),
            measure_train_loss=True,
            checkpoint=checkpoint,
            progress=progress,
            threads=threads,
        )
    if result.status is Status.DIVERGED:
        raise ValueError(f"training diverged: {result.reason}; give a smaller lr, or take the optimizer 'auto'")
    if not result.epochs and result.status is not Status.INTERRUPTED:
        raise ValueError(f"no epoch was finished ({result.reason}); give it more time")
    guess = guess_of(prepared.target, prepared.training[1])
    model = TabularModel(
        network.cpu(),
        prepared.features,
        prepared.target,
        ignored=prepared.ignored,
        missing=choices.reading.missing,
        guess=guess,
        recognition=prepared.recognition,
        trusted=choices.trust,
    )
    scores = None
    if prepared.test is not None:
        scores = scores_of(prepared.target, guess, model.outputs(prepared.test[0]), prepared.test[1])
    _announce(result, scores)
    if result.epochs:
        _write(outputs, model, result, scores, prepared)
    return TabularResult(model, result, scores)


def predict_table(
    model: str | Path | TabularModel,
    source: str | Path | Table,
    *,
    drop: tuple[str, ...] = (),
    keep: tuple[str, ...] = (),
    reading: Reading | None = None,
    unknown: Unknown = "zeros",
    out: str | Path | None = None,
    probabilities: bool = False,
) -> Predictions:
    """Predicts every row of a file or table.

    Args:
        model: a model, or the file of one.
        source: a csv, parquet or npz file, or a table.
        drop: columns that are there, and are not to be looked at.
        keep: columns to hand on beside the predictions.
        reading: how to read the file.
        unknown: what becomes of a category that the training rows did not have.
        out: a csv file to write.
        probabilities: write that of every class, not only the largest.

    Returns:
        The predictions, with their scores where the table has the whole target.
    """
    if out is not None:
        check_outputs({"out": Path(out)}, [Path(path) for path in (model, source) if isinstance(path, str | Path)])
    model, table = _model_and_table(model, source, drop, reading)
    predictions = model.predict(table, unknown=unknown, keep=keep)
    if model.target.name in table:
        try:
            predictions = replace(predictions, scores=model.evaluate(table, keep=keep))
        except DataError as error:  # what is to be predicted need not be known
            logger.debug("no scores: %s", error)
    if out is not None:
        write_all({Path(out): predictions.to_csv(probabilities=probabilities).encode()})
    return predictions


def evaluate_table(
    model: str | Path | TabularModel,
    source: str | Path | Table,
    *,
    drop: tuple[str, ...] = (),
    reading: Reading | None = None,
    unknown: Unknown = "zeros",
) -> Scores:
    """Scores a model on a file or table that has the target.

    Args:
        model: a model, or the path of its file.
        source: a file or a table.
        drop: columns to leave out.
        reading: how the file is read.
        unknown: what becomes of categories that the training data did not have.

    Returns:
        The scores, beside those of a guess.

    Raises:
        ValueError: if columns are lacking, or cells cannot be used.
    """
    model, table = _model_and_table(model, source, drop, reading)
    return model.evaluate(table, unknown=unknown)


def _model_and_table(
    model: str | Path | TabularModel, source: str | Path | Table, drop: tuple[str, ...], reading: Reading | None
) -> tuple[TabularModel, Table]:
    if not isinstance(model, TabularModel):
        model = load_model(model)
    table = source if isinstance(source, Table) else read_table(source, model.reading(reading or Reading()))
    return model, table.without(drop)


def _check_device(device: str) -> None:
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device not in there:
        raise ValueError(unknown_name("device", device, there))
    if not there[device]:
        known = ", ".join(name for name, available in there.items() if available)
        raise ValueError(f"there is no device {device!r} that this torch can use; there is {known}")


def _keep_aside(prepared: Prepared, seed: int) -> tuple[Pair, Pair]:
    """Nine tenths of the training rows, and the rest to stop by: the test rows stay for the scores."""
    x, y = prepared.training
    labels = np.asarray(y) if isinstance(prepared.target, ClassTarget) else None
    training, aside = split_rows(len(x), _SHARE_ASIDE, seed, labels, source=prepared.source)
    logger.info("patience: %s of the training rows are kept aside to stop by", len(aside))
    return (x[training], y[training]), (x[aside], y[aside])


def _network(net: str, activation: str, prepared: Prepared, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return layered(net, prepared.features.width, outputs=prepared.target.outputs, activation=activation)


def _loss(prepared: Prepared, class_weight: str | None) -> nn.Module:
    check_choice("class_weight", class_weight, ("balanced", None))
    if not isinstance(prepared.target, ClassTarget):
        if class_weight is not None:
            raise ValueError(f"class_weight is for classes, and {prepared.target.name!r} is a number; leave it out")
        return nn.MSELoss()
    if class_weight is None:
        return nn.CrossEntropyLoss()
    shares = np.array(guess_of(prepared.target, prepared.training[1]))
    return ClassWeighted(np.divide(1, shares * len(shares), out=np.zeros_like(shares), where=shares > 0))


def _metrics(prepared: Prepared) -> tuple[str, ...]:
    return ("accuracy",) if isinstance(prepared.target, ClassTarget) else ("r2",)


def _announce(result: FitResult, scores: Scores | None) -> None:
    logger.info("training: %s epochs in %.1f s, %s", result.epochs, result.seconds, result.reason)
    if isinstance(result.optimizer, CMALight | CMA) and result.optimizer.control.state.stall_reported:
        logger.warning(
            "the training stalled: its step size became too small to move the weights; "
            "take the optimizer 'auto' or 'cmalight-certified', or another lr"
        )
    if scores is None:
        return
    for line in scores.lines("test rows"):
        logger.info("%s", line)
    if not scores.beats_the_guess:
        logger.warning(
            "on the test rows the model is no better than a guess (%s); "
            "train longer, try another network or optimizer, or look whether the columns say anything of the target",
            scores.guess,
        )


def _write(outputs: Outputs, model: TabularModel, result: FitResult, scores: Scores | None, prepared: Prepared) -> None:
    contents: dict[Path, bytes] = {}
    if outputs.save is not None:
        contents[Path(outputs.save)] = model_to_bytes(model)
    if outputs.history is not None:
        contents[Path(outputs.history)] = "".join(f"{record.to_json()}\n" for record in result.history).encode()
    if outputs.plot is not None:
        contents[Path(outputs.plot)] = _picture(Path(outputs.plot), result, scores, prepared)
    write_all(contents)
    for path in contents:
        logger.info("written: %s", path)


def _picture(path: Path, result: FitResult, scores: Scores | None, prepared: Prepared) -> bytes:
    loss = "cross entropy" if isinstance(prepared.target, ClassTarget) else "squared error (scaled target)"
    title = f"{Path(prepared.source).name}: {prepared.target.name}"
    return training_picture(result.history, scores, title=title, kind=path.suffix[1:].lower(), loss=loss)
