"""From a file or a data set to what can be trained on: a target, a task, training and test rows, encodings."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from cmalight.errors import check_choice, check_part
from cmalight.tables.encoding import CategoricalFeature, FeatureEncoding, NumericFeature
from cmalight.tables.reading import read_table
from cmalight.tables.recognition import Recognition, recognise
from cmalight.tables.scaling import SCALING_KINDS, MinMax, ScalingKind
from cmalight.tables.splitting import Rows, split_rows
from cmalight.tables.table import Reading, Table, listed
from cmalight.tables.targets import ClassTarget, NumberTarget, Target, Task, complete_target, detect_task

if TYPE_CHECKING:
    from cmalight.datasets import DataSplit

logger = logging.getLogger("cmalight.tabular")


@dataclass(frozen=True)
class TableChoices:
    """What is to be learnt from a table; None lets the table decide.

    Args:
        target: the column to predict; in an npz file the array, "y" unless told.
        task: "regression" or "classification"; None looks at the target.
        reading: how a file is read.
        categorical: columns of categories that look like numbers.
        drop: columns to leave out.
        impute: "median" fills missing numbers with the median, missing text with the most frequent category.
        test_share: the share of the rows that is kept for testing.
        seed: which rows those are.
        scaling: of the numbers among the inputs: "robust" by median and quartiles, with outliers drawn in, "standard"
            by mean and standard deviation, "minmax" to [0, 1].
        as_is: columns that are taken as they are, though they look like dates, amounts or ids.
        trust: take the files of a data set whatever their checksum; the model says so then.
    """

    target: str | None = None
    task: Task | None = None
    reading: Reading = Reading()  # noqa: RUF009 - it is frozen
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    impute: Literal["median"] | None = None
    test_share: float = 0.25
    seed: int = 0
    scaling: ScalingKind = "robust"
    as_is: tuple[str, ...] = ()
    trust: bool = False

    def __post_init__(self) -> None:
        check_part("test_share", self.test_share)
        check_choice("impute", self.impute, ("median", None))
        check_choice("scaling", self.scaling, SCALING_KINDS)
        check_choice("task", self.task, ("regression", "classification", None))


Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Prepared:
    """Inputs and targets as the network takes them, and the encodings that were fitted on the training part."""

    source: str
    training: Pair
    test: Pair | None
    features: FeatureEncoding
    target: Target
    ignored: tuple[str, ...] = ()
    recognition: Recognition = Recognition()  # noqa: RUF009 - it is frozen


def is_file(source: str | Path) -> bool:
    """Whether a word on the command line means a file rather than a data set."""
    path = Path(source)
    if source == "-":  # standard input
        return True
    if path.suffix.lower() == ".toml":  # describes a data set of the user's own
        return False
    looks_like_one = re.fullmatch(r"[^:]+\.[A-Za-z][A-Za-z0-9]*", path.name) is not None
    return isinstance(source, Path) or looks_like_one or len(path.parts) > 1 or path.is_file()


def prepare(source: str | Path | Table, choices: TableChoices) -> Prepared:
    """Reads, checks, splits and encodes; says by log what was decided."""
    if not isinstance(source, Table) and not is_file(source):
        return _prepare_dataset(str(source), choices)
    if choices.trust:
        raise ValueError("trust is for data sets, whose files have a known checksum; leave it out for a file or table")
    table = source if isinstance(source, Table) else _read(Path(source), choices)
    name = choices.target or ("y" if table.layout == "npz" else None)
    if name is None:
        raise ValueError(
            f"{table.source}: which column is to be predicted? name it (target), one of {listed(table.names)}"
        )
    for named in (name, *choices.categorical, *choices.as_is):
        table.column(named)
    if name in choices.drop:
        raise ValueError(f"{table.source}: column {name!r} is the target and to be dropped at once; choose one")
    table = table.without(choices.drop)
    logger.info("data: %s, %s rows, %s columns, %s", table.source, table.rows, len(table.columns), table.layout)
    as_is = {*choices.categorical, *choices.as_is}
    recognition = recognise(table, target=name, as_is=as_is, decimal=choices.reading.decimal)
    for note in recognition.notes:
        logger.info("%s", note)
    table = recognition.apply(table)
    column = complete_target(table, name)
    task, why = (choices.task, "as asked for") if choices.task else detect_task(table.source, column)
    labels = column.values if task == "classification" else None
    training, test = split_rows(table.rows, choices.test_share, choices.seed, labels, source=table.source)
    target = _target(table, name, task, training)
    features = FeatureEncoding.fitted_on(
        table.without([name]),
        training,
        impute=choices.impute is not None,
        categorical=choices.categorical,
        scaling=choices.scaling,
    )
    if choices.scaling != "robust":
        for outlying in features.outlying(table.take(training)):
            logger.warning("column %r has a value far from all others; scaling 'robust' draws it in", outlying)
    for feature, categories in features.unknown(table.take(test)).items():
        logger.info("column %r: only test rows have %s, which count as none", feature, listed(categories))
    pairs = [_encoded(table.take(rows), features, target) for rows in (training, test)]
    tested = pairs[1] if len(test) else None
    ignored = (*choices.drop, *recognition.left_out)
    return _announced(Prepared(table.source, pairs[0], tested, features, target, ignored, recognition), why)


def _encoded(part: Table, features: FeatureEncoding, target: Target) -> Pair:
    kind = np.int64 if isinstance(target, ClassTarget) else np.float32
    return features.apply(part).astype(np.float32), target.encode(part).astype(kind)


def _read(path: Path, choices: TableChoices) -> Table:
    reading = replace(choices.reading, as_text=frozenset(choices.categorical), target=choices.target or "y")
    return read_table(path, reading)


def _target(table: Table, name: str, task: Task, training: Rows) -> Target:
    if task == "classification":
        return ClassTarget.fitted_on(table, name)
    return NumberTarget.fitted_on(table, name, training)


def _prepare_dataset(name: str, choices: TableChoices) -> Prepared:
    """A data set comes encoded, split and scaled."""
    from cmalight.datasets import dataset_info, load_dataset

    file_options = {
        "target": choices.target,
        "drop": choices.drop,
        "categorical": choices.categorical,
        "impute": choices.impute,
        "missing": choices.reading.missing,
        "as_is": choices.as_is,
        "scaling": choices.scaling != TableChoices.scaling,
    }
    for option, given in file_options.items():
        if given:
            raise ValueError(f"{option} is for files, and {name!r} is a data set, which comes ready; leave it out")
    data = load_dataset(name, seed=choices.seed, test_share=choices.test_share, trust=choices.trust)
    if choices.trust:
        logger.warning("the files of %s are taken whatever their checksum (trust)", name)
    if choices.task not in (None, data.task):
        raise ValueError(f"the data set {name!r} is for {data.task}; leave the task out")
    logger.info("data: %s, %s rows, %s features", name, len(data.x_train) + len(data.x_test), data.features)
    inputs, features = _features_of(data)
    training, test = (
        (inputs(part.flatten(1)), y) for part, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))
    )
    source = dataset_info(name).source
    ignored = tuple(str(column) for column in getattr(source, "drop", ()))
    prepared = Prepared(name, training, test if len(test[0]) else None, features, _target_of(data), ignored)
    return _announced(prepared, "as the data set says")


def _features_of(data: DataSplit) -> tuple[Callable[[Tensor], Tensor], FeatureEncoding]:
    """How rows of other files become inputs like those of the data set.

    Returns:
        What makes the inputs of the data set those of the encoding, in which numbers come first; and the encoding.
    """
    if data.meaning is None or data.input_scaling is None:
        # Pixels come divided by 255, and are not scaled otherwise.
        scaling = data.input_scaling or MinMax(low=np.zeros(data.features), high=np.full(data.features, 255.0))
        columns = tuple(NumericFeature(f"x{index}", None) for index in range(data.features))
        return lambda x: x, FeatureEncoding(columns, scaling, ())
    numeric: list[int] = []
    indicated: list[int] = []
    at = 0
    for _, categories in data.meaning.columns:
        (indicated if categories else numeric).extend(range(at, at + max(1, len(categories))))
        at += max(1, len(categories))
    scaling = MinMax(low=data.input_scaling.low[numeric], high=data.input_scaling.high[numeric])
    described = data.meaning.columns
    numbers = tuple(NumericFeature(column, None) for column, categories in described if not categories)
    texts = tuple(CategoricalFeature(column, categories, None) for column, categories in described if categories)
    # A category that all training rows have was scaled to 0.
    shift = torch.tensor([*(0.0 for _ in numeric), *data.input_scaling.low[indicated]], dtype=torch.float32)
    order = [*numeric, *indicated]
    return (lambda x: x[:, order] + shift) if indicated else (lambda x: x), FeatureEncoding(numbers, scaling, texts)


def _target_of(data: DataSplit) -> Target:
    name = "y" if data.meaning is None else data.meaning.target
    if data.target_scaling is not None:
        return NumberTarget(name, data.target_scaling)
    named = () if data.meaning is None else data.meaning.classes
    known = len(named) == data.classes
    return ClassTarget(name, named if known else tuple(str(label) for label in range(data.classes or 0)))


def _announced(prepared: Prepared, why: str) -> Prepared:
    target, features = prepared.target, prepared.features
    classes = f", {len(target.classes)} classes: {listed(target.classes)}" if isinstance(target, ClassTarget) else ""
    logger.info("task: %s of %r (%s)%s", target.task, target.name, why, classes)
    kinds = f"{len(features.numeric)} numeric, {len(features.categorical)} categorical"
    logger.info("features: %s, which make %s inputs", kinds, features.width)
    tests = 0 if prepared.test is None else len(prepared.test[0])
    logger.info("split: %s training rows, %s test rows", len(prepared.training[0]), tests)
    return prepared
