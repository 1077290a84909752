"""Train a network on a table, keep it in a file, predict and score: the library behind `cmalight train`."""

from __future__ import annotations

import io
import logging
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cmalight.errors import DataError, check_choice, check_fraction, check_seed, needed
from cmalight.files import write_atomically
from cmalight.integrations.frames import SUFFIXES, column_kinds, convert, read_table, require_column, require_file
from cmalight.integrations.sklearn import CMALightClassifier, CMALightRegressor, spread_rows

# isort: split

import numpy as np
import pandas as pd
from sklearn import metrics  # type: ignore[import-untyped]
from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]
from sklearn.dummy import DummyClassifier, DummyRegressor  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # type: ignore[import-untyped]

logger = logging.getLogger("cmalight")

Task = Literal["regression", "classification"]
Source = str | os.PathLike[str] | pd.DataFrame

_FORMAT = "cmalight table model 1"
_TRUSTED = ["numpy.dtype", *(f"{kind.__module__}.{kind.__name__}" for kind in (CMALightClassifier, CMALightRegressor))]
_FEWEST_ROWS = 10
_NETWORK, _LINEAR, _GUESS = "network", "linear model", "guess"


@dataclass(frozen=True)
class Scores:
    """Scores of the network, of a linear model and of a guess on the same rows.

    Attributes:
        table: One row per model, one column per metric of scikit-learn.
        verdict: One sentence that compares the models by one proper score: squared error, or log loss for classes.
        beats_guess: Whether the network's score is better than the guess's by more than two standard errors.
    """

    table: pd.DataFrame
    verdict: str
    beats_guess: bool

    def __str__(self) -> str:
        return f"{self.table.to_string(float_format='{:.4g}'.format)}\n{self.verdict}"


@dataclass(frozen=True)
class TableModel:
    """A trained network with the column types of its table.

    Attributes:
        target: Name of the target.
        task: "regression" or "classification".
        kinds: Kind of each column, as decided at training.
        encoder: scikit-learn's ColumnTransformer from columns to inputs.
        models: The network, a linear model and a guess, by name.
    """

    target: str
    task: Task
    kinds: dict[str, str]
    encoder: Any
    models: dict[str, Any]

    def predict(self, source: Source, *, probabilities: bool = False) -> pd.DataFrame:
        """Predict each row of a table.

        Args:
            source: A file or a frame that has the columns of the training table; others are ignored.
            probabilities: Add one column per class with its probability.

        Returns:
            A frame with the column "prediction" and the index of the table.

        Raises:
            DataError: The table lacks a column, or holds something else than at training.
        """
        return self._predict(*_frame(source), probabilities)

    def _predict(self, frame: pd.DataFrame, name: str, probabilities: bool) -> pd.DataFrame:
        inputs = self.encoder.transform(convert(frame, self.kinds, name))
        network = self.models[_NETWORK]
        predicted = pd.DataFrame({"prediction": network.predict(inputs)}, index=frame.index)
        if probabilities:
            if self.task == "regression":
                raise ValueError(f"probabilities are for classes, but {self.target!r} is a number")
            predicted[[f"probability {label}" for label in network.classes_]] = network.predict_proba(inputs)
        return predicted

    def evaluate(self, source: Source) -> Scores:
        """Score the model on a table that has the target.

        Args:
            source: A file or a frame.

        Returns:
            Scores beside those of a linear model and a guess that were fitted on the same training rows.

        Raises:
            DataError: The table lacks a column, or holds something else than at training.
        """
        frame, name = _frame(source)
        require_column(frame, self.target, name)
        frame = frame[frame[self.target].notna()]
        truth = _target(frame[self.target], self.models[_GUESS])
        inputs = self.encoder.transform(convert(frame, self.kinds, name))
        return _scores(self.models, inputs, truth, self.task)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model without pickle: reading the file runs no code from it.

        Args:
            path: The file.

        Raises:
            OSError: The file cannot be written.
        """
        with needed("Model files need skops", "cli"):
            import skops.io  # type: ignore[import-untyped]
        write_atomically(Path(path), skops.io.dumps({"format": _FORMAT, **vars(self)}))


def load_model(path: str | os.PathLike[str]) -> TableModel:
    """Read a model that `TableModel.save` wrote.

    Args:
        path: The file.

    Returns:
        The model.

    Raises:
        OSError: The file is missing or not a regular file.
        DataError: The file is damaged, or holds other types than a model has; nothing of it was run.
    """
    with needed("Model files need skops", "cli"):
        import skops.io
        from skops.io.exceptions import UntrustedTypesFoundException  # type: ignore[import-untyped]
    data = require_file(path).read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()
        content = None if damaged else skops.io.loads(data, trusted=_TRUSTED)
    except UntrustedTypesFoundException as error:
        raise DataError(f"{path} holds types that no model of cmalight has; it was not loaded: {error}") from error
    except Exception as error:  # a damaged archive fails wherever its content no longer makes sense
        raise DataError(f"{path} is not a model file of cmalight, or is damaged") from error
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise DataError(f"{path} is not a model file of cmalight, or is damaged")
    return TableModel(**content)


@dataclass(frozen=True)
class TrainedTable:
    """The result of `train_table`.

    Attributes:
        model: The trained model.
        scores: Scores on the test rows.
        interrupted: Whether Ctrl-C ended the training early; the finished epochs are kept.
    """

    model: TableModel
    scores: Scores
    interrupted: bool


def train_table(
    source: Source,
    target: str | None = None,
    *,
    task: Task | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    test_share: float = 0.25,
    seed: int = 0,
    save: str | os.PathLike[str] | None = None,
    curve: str | os.PathLike[str] | None = None,
    **options: Any,
) -> TrainedTable:
    """Train a network on a part of the rows of a table, and score it on the others.

    Args:
        source: A csv, parquet or xlsx file, a frame, or the name of a data set.
        target: Column to predict; not for data sets.
        task: "regression" or "classification"; by default the target decides.
        categorical: Columns that are categories although they hold numbers.
        drop: Columns to leave out.
        test_share: Share of the rows to score on.
        seed: Random seed of the split and the training.
        save: File to write the model to.
        curve: Picture (.png, .svg or .pdf) of the loss of each epoch.
        **options: Arguments of `CMALightRegressor` or `CMALightClassifier`.

    Returns:
        The model and its scores.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: An argument or the table cannot be used.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from cmalight.integrations.tables import train_table
        >>> result = train_table(load_wine(as_frame=True).frame, "target", max_epochs=20)
        >>> result.scores.beats_guess
        True
    """
    check_fraction("test_share", test_share)
    check_seed("seed", seed)
    _check_outputs(source, save, curve)
    if not isinstance(source, pd.DataFrame) and _is_dataset(source):
        name = str(source)
        frame, target, task = _dataset(name, target)
    else:
        frame, name = _frame(source)
    if target is None:
        raise ValueError(f"name the target, the column to predict: one of {', '.join(map(str, frame.columns))}")
    require_column(frame, target, name)
    logger.info("table: %s, %d rows, %d columns", name, *frame.shape)
    frame = _with_target(frame, target, name)
    task = task or _guess_task(frame[target])
    check_choice("task", task, ("regression", "classification"))
    is_class = task == "classification"
    if "class_weight" in options and not is_class:
        raise ValueError(f"class_weight is for classes, but {target!r} is a number")
    linear, guess = (LogisticRegression(max_iter=1000), DummyClassifier()) if is_class else (Ridge(), DummyRegressor())
    network = (CMALightClassifier if is_class else CMALightRegressor)(random_state=seed, **options)
    truth = _target(frame[target], guess)
    tested = spread_rows(np.unique(truth, return_inverse=True)[1] if is_class else truth, test_share, seed)
    rows = frame.drop(columns=target)
    kinds = column_kinds(rows[~tested], categorical=categorical, drop=drop)
    table = convert(rows, kinds, name)
    encoder = _encoder(table[~tested])
    inputs = encoder.fit_transform(table[~tested])
    logger.info(
        "%s of %r from %d columns (%s); %d rows to train on, %d to test on",
        *(task, target, len(kinds), _count(kinds), (~tested).sum(), tested.sum()),
    )
    models = {_NETWORK: network, _LINEAR: make_pipeline(StandardScaler(), linear), _GUESS: guess}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for model in models.values():
            model.fit(inputs, truth[~tested])
    trained = TableModel(target, task, kinds, encoder, models)
    scores = _scores(models, encoder.transform(table[tested]), truth[tested], task)
    logger.info("%d epochs (%s)\n%s", network.n_iter_, network.status_, scores)
    if save is not None:
        trained.save(save)
        logger.info("written: %s", save)
    if curve is not None:
        write_atomically(Path(curve), _picture(network, Path(curve).suffix[1:]))
        logger.info("written: %s", curve)
    return TrainedTable(trained, scores, network.status_ == "interrupted")


def predict_table(
    model: str | os.PathLike[str],
    source: Source,
    *,
    keep: Sequence[str] = (),
    probabilities: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Predict each row of a table with a model from a file.

    Args:
        model: The model file.
        source: A file or a frame.
        keep: Columns of the table to put before the predictions.
        probabilities: Add one column per class with its probability.
        out: A csv file to write the result to.

    Returns:
        One row per row of the table.

    Raises:
        OSError: A file cannot be read or written.
        DataError: The model or the table cannot be used.
    """
    _check_outputs(source, out, None)
    loaded = load_model(model)
    frame, name = _frame(source)
    for column in keep:
        require_column(frame, column, name)
    result = frame[list(keep)].join(loaded._predict(frame, name, probabilities))
    if out is not None:
        write_atomically(Path(out), result.to_csv(index=False))
    return result


def evaluate_table(model: str | os.PathLike[str], source: Source) -> Scores:
    """Score a model from a file on a table that has the target.

    Args:
        model: The model file.
        source: A file or a frame.

    Returns:
        Scores beside those of a linear model and a guess.

    Raises:
        OSError: A file cannot be read.
        DataError: The model or the table cannot be used.
    """
    return load_model(model).evaluate(source)


def _check_outputs(source: Source, *outputs: str | os.PathLike[str] | None) -> None:
    """Find out before the training what would make writing fail after it."""
    for output in (Path(one) for one in outputs if one is not None):
        if output.is_dir() or not output.parent.is_dir():
            raise ValueError(f"{output} cannot be written: give a file in a directory that exists")
        if not isinstance(source, pd.DataFrame) and output.resolve() == Path(source).resolve():
            raise ValueError(f"{output} is the table itself; write to another file")
    curve = outputs[-1]
    if curve is not None and Path(curve).suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{curve} has an unknown type of picture; expected a name ending in .png, .svg or .pdf")


def _frame(source: Source) -> tuple[pd.DataFrame, str]:
    if isinstance(source, pd.DataFrame):
        return source.rename(columns=str), "the frame"
    return read_table(source), str(source)


def _is_dataset(source: str | os.PathLike[str]) -> bool:
    return not Path(source).exists() and not str(source).lower().endswith(SUFFIXES) and os.sep not in str(source)


def _dataset(name: str, target: str | None) -> tuple[pd.DataFrame, str, Task]:
    from cmalight.datasets import load_dataset

    if target is not None:
        raise ValueError(f"target is for files; the data set {name} has its own")
    data = load_dataset(name, scale=False)
    if data.x_train.ndim != 2:
        raise ValueError(f"the data set {name} holds images, not a table; train on it with `cmalight.fit`")
    inputs = np.concatenate((data.x_train, data.x_test))
    truth = np.concatenate((data.y_train, data.y_test)).reshape(len(inputs))
    frame = pd.DataFrame(inputs, columns=data.feature_names or [f"x{number}" for number in range(inputs.shape[1])])
    return frame.assign(target=np.array(data.class_names)[truth] if data.class_names else truth), "target", data.task


def _with_target(frame: pd.DataFrame, target: str, name: str) -> pd.DataFrame:
    known = frame[target].notna()
    if not known.all():
        logger.info("left out: %d rows without %r", (~known).sum(), target)
    frame = frame[known]
    if len(frame) < _FEWEST_ROWS:
        raise DataError(f"{name} has {len(frame)} rows with a target; at least {_FEWEST_ROWS} are needed")
    if frame[target].nunique() < 2:
        raise DataError(f"{name}: the target {target!r} is {frame[target].iloc[0]!r} in all rows; nothing to predict")
    return frame


def _guess_task(target: pd.Series) -> Task:
    """Words, flags, and up to ten whole numbers that repeat are classes."""
    if pd.api.types.is_bool_dtype(target) or not pd.api.types.is_numeric_dtype(target):
        return "classification"
    whole = bool((target == target.round()).all())
    return "classification" if whole and target.nunique() <= min(10, len(target) / 2) else "regression"


def _target(column: pd.Series, guess: Any) -> Any:
    """The target as training and scoring need it; `guess` knows the classes once it is fitted."""
    column = column.infer_objects()
    is_number = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
    if isinstance(guess, DummyRegressor):
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        if not np.isfinite(numbers).all():
            raise DataError(f"the target {column.name!r} holds {column[~np.isfinite(numbers)].iloc[0]!r}, not a number")
        return numbers.to_numpy()
    classes = getattr(guess, "classes_", None)
    if classes is not None and classes.dtype.kind not in "OU" and not is_number:
        column = pd.to_numeric(column)
    elif classes is not None and classes.dtype.kind in "OU" and is_number:
        is_number = False
    return column.to_numpy() if is_number else column.astype(str).str.strip().to_numpy(dtype=object)


def _encoder(table: pd.DataFrame) -> Any:
    """Numbers with gaps filled, and one input per frequent category; rare and unknown categories share one."""
    words = [name for name in table if table[name].dtype == np.dtype(object)]
    categories = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=3, max_categories=100, sparse_output=False
    )
    gaps = SimpleImputer(strategy="median", add_indicator=True)
    return ColumnTransformer(
        [("numbers", gaps, [name for name in table if name not in words]), ("words", categories, words)]
    )


def _count(kinds: dict[str, str]) -> str:
    found = [kind.partition(",")[0] for kind in kinds.values()]
    return ", ".join(f"{found.count(kind)} {kind}" for kind in dict.fromkeys(found))


def _scores(models: dict[str, Any], inputs: Any, truth: Any, task: Task) -> Scores:
    table, losses = {}, {}
    for name, model in models.items():
        predicted = model.predict(inputs)
        if task == "regression":
            losses[name] = (predicted - truth) ** 2
            table[name] = {
                "squared error": metrics.mean_squared_error(truth, predicted),
                "mean absolute error": metrics.mean_absolute_error(truth, predicted),
                "r2": metrics.r2_score(truth, predicted) if len(truth) > 1 else np.nan,
            }
        else:
            of_truth = (model.predict_proba(inputs) * (truth[:, None] == model.classes_)).sum(axis=1)
            losses[name] = -np.log(np.clip(of_truth, 1e-15, 1.0))
            table[name] = {
                "log loss": losses[name].mean(),
                "accuracy": metrics.accuracy_score(truth, predicted),
                "balanced accuracy": metrics.balanced_accuracy_score(truth, predicted),
            }
    verdict, beats_guess = _verdict(losses, "squared error" if task == "regression" else "log loss")
    return Scores(pd.DataFrame(table).T, verdict, beats_guess)


def _verdict(losses: dict[str, Any], score: str) -> tuple[str, bool]:
    network, linear, guess = (losses[name] for name in (_NETWORK, _LINEAR, _GUESS))

    def compared(other: Any) -> str:
        return f"({score} {network.mean():.4g} against {other.mean():.4g})"

    if not _is_lower(network, guess):
        return f"The network is no better than guessing {compared(guess)}.", False
    if _is_lower(network, linear):
        return f"The network is better than a linear model {compared(linear)}.", True
    if _is_lower(linear, network):
        return f"A linear model is better than the network {compared(linear)}.", True
    return f"The network is level with a linear model {compared(linear)}.", True


def _is_lower(first: Any, second: Any) -> bool:
    """Lower by more than two standard errors of the mean difference of the rows."""
    gain = second - first
    return bool(gain.mean() > 2 * gain.std() / len(gain) ** 0.5)


def _picture(network: Any, kind: str) -> bytes:
    with needed("A learning curve needs matplotlib", "cli"):
        from matplotlib.figure import Figure
    axes = (figure := Figure(figsize=(6, 4), layout="constrained")).add_subplot()
    axes.plot(network.loss_curve_, label="training rows")
    if validation := network.validation_loss_curve_:
        axes.plot(validation, label="rows kept aside")
        axes.axvline(int(np.argmin(validation)), color="0.7", linestyle=":", label="weights kept")
    axes.set(xlabel="epoch", ylabel="loss", yscale="log")
    axes.legend()
    figure.savefig(content := io.BytesIO(), format=kind)
    return content.getvalue()
