"""A trained network with its encoding, applied to tables."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cmalight.errors import DataError
from cmalight.tables.encoding import FeatureEncoding
from cmalight.tables.from_frame import table_from_frame
from cmalight.tables.recognition import Recognition
from cmalight.tables.scaling import Array
from cmalight.tables.table import Column, Reading, Table, listed, number_name
from cmalight.tables.targets import ClassTarget, Target, complete_target
from cmalight.tabular.export import export_network
from cmalight.tabular.scores import Scores, scores_of

if TYPE_CHECKING:
    import pandas

Unknown = Literal["zeros", "refuse"]

logger = logging.getLogger("cmalight.tabular")

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Predictions:
    """One value per row, a number in the units of the training data or the name of a class, and how sure that is.

    Args:
        target: its name.
        values: one per row.
        probabilities: of each class, one row each; None where the target is a number.
        classes: their names, in the order of `probabilities`.
        kept: columns of the table that were asked for.
        scores: of the values, where the truth was there.
    """

    target: str
    values: npt.NDArray[Any]
    probabilities: Array | None = None
    classes: tuple[str, ...] = ()
    kept: tuple[Column, ...] = ()
    scores: Scores | None = None

    def to_pandas(self, *, probabilities: bool = False) -> pandas.DataFrame:
        """A frame with the kept columns, `prediction`, and for classes `probability`.

        Args:
            probabilities: one column for each class, named by it, in place of the largest.

        Returns:
            One row per prediction.
        """
        import pandas

        columns = {column.name: column.values for column in self.kept} | {"prediction": self.values}
        if self.probabilities is not None:
            if probabilities:
                columns |= {f"probability {name}": self.probabilities[:, i] for i, name in enumerate(self.classes)}
            else:
                columns["probability"] = self.probabilities.max(axis=1)
        return pandas.DataFrame(columns)

    def to_csv(self, *, probabilities: bool = False) -> str:
        """The frame as csv: predictions to eight digits, probabilities to four places.

        Args:
            probabilities: as in `to_pandas`.

        Returns:
            The text of a file.
        """
        frame = self.to_pandas(probabilities=probabilities)
        kept = [column.name for column in self.kept]
        for name in frame.columns.drop(kept):
            if name != "prediction" or self.probabilities is None:
                frame[name] = frame[name].map(("{:.8g}" if name == "prediction" else "{:.4f}").format)
        for column in self.kept:
            if column.is_numeric:
                frame[column.name] = [None if np.isnan(cell) else number_name(cell) for cell in column.values]
        return frame.to_csv(index=False, lineterminator="\n")


@dataclass(frozen=True)
class TabularModel:
    """What `train_on_table` made, and `load_model` reads.

    Args:
        network: that was trained.
        features: how columns become its inputs.
        target: how its outputs become predictions.
        ignored: columns that were left out of the training and may be there again.
        missing: cells that stood for a missing value in the training data.
        guess: the mean of the target, or the share of each class, in the training rows.
        recognition: the columns that were converted before they were encoded.
        trusted: whether the files of its data set were taken whatever their checksum.
    """

    network: nn.Module
    features: FeatureEncoding
    target: Target
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    guess: tuple[float, ...] = ()
    recognition: Recognition = Recognition()  # noqa: RUF009 - it is frozen
    trusted: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that a table needs."""
        converted = [one for one in self.recognition.columns if one.name != self.target.name]
        made = {name for one in converted for name in one.names}
        return (*(name for name in self.features.names if name not in made), *(one.name for one in converted))

    def reading(self, reading: Reading) -> Reading:
        """How a file has to be read so that its cells mean what they meant in the training data.

        Args:
            reading: as it is asked for.

        Returns:
            The same, with what stood for a missing value in training.
        """
        converted = (one.name for one in self.recognition.columns)
        as_text = frozenset((*(feature.name for feature in self.features.categorical), *converted))
        missing = (*reading.missing, *self.missing)
        return replace(reading, as_text=as_text, missing=missing, target=self.target.name)

    def table(self, frame: pandas.DataFrame) -> Table:
        """The table of a frame, its columns taken as they were in training.

        Args:
            frame: with the columns of the training data; more are left alone.

        Returns:
            What `predict` takes.
        """
        return table_from_frame(frame, Path("the frame"), self.reading(Reading()), "frame")

    def encode(self, rows: Table | pandas.DataFrame) -> npt.NDArray[np.float32]:
        """What the network takes for each row: what an exported file has to be given.

        Args:
            rows: a frame, or a table of `read_table`.

        Returns:
            One row of inputs per row.
        """
        return self.features.apply(rows if isinstance(rows, Table) else self.table(rows)).astype(np.float32)

    def export(self, path: str | Path) -> None:
        """Writes a file that other programs run; see `cmalight.tabular.export.export_network`.

        Args:
            path: ends in .onnx (`pip install "cmalight[onnx]"`) or, for `torch.export.load`, in .pt2.
        """
        export_network(self.network, self.target, self.features.width, path)

    def predict(
        self, rows: Table | pandas.DataFrame, *, unknown: Unknown = "zeros", keep: Collection[str] = ()
    ) -> Predictions:
        """Predicts each row; the target may be among the columns and is not looked at.

        Args:
            rows: a frame, or a table of `read_table`.
            unknown: a category that the training rows did not have is none of the known ones ("zeros"), or an error.
            keep: columns to hand back beside the predictions; they may be others than those of the training.

        Returns:
            One per row.

        Raises:
            DataError: a column is missing, more than is known, or not what it was in training.
        """
        table = rows if isinstance(rows, Table) else self.table(rows)
        kept = tuple(table.column(name) for name in keep)
        taken = [name for name in keep if name == "prediction" or name.startswith("probability")]
        if taken:
            raise DataError(
                f"{table.source}: the kept column {taken[0]!r} is called as a column of predictions is; rename it"
            )
        outputs = self._outputs_for(table, unknown, keep)
        if isinstance(self.target, ClassTarget):
            names = np.array(self.target.decode(outputs), dtype=object)
            chances = torch.softmax(torch.as_tensor(outputs), dim=1).numpy()
            return Predictions(self.target.name, names, chances, self.target.classes, kept)
        return Predictions(self.target.name, self.target.decode(outputs), kept=kept)

    def evaluate(
        self, rows: Table | pandas.DataFrame, *, unknown: Unknown = "zeros", keep: Collection[str] = ()
    ) -> Scores:
        """Scores the predictions of rows whose target is known; arguments as those of `predict`.

        Args:
            rows: a frame, or a table of `read_table`, with the target.
            unknown: as in `predict`.
            keep: as in `predict`.

        Returns:
            The scores, beside those of a guess.

        Raises:
            DataError: as `predict`; or the target is not there, is missing in a row, or is a class of no training row.
        """
        table = rows if isinstance(rows, Table) else self.table(rows)
        known = self._converted(table)
        column = complete_target(known, self.target.name)
        if isinstance(self.target, ClassTarget):
            found = {number_name(label) if column.is_numeric else label for label in column.values.tolist()}
            if strange := sorted(found - set(self.target.classes)):
                raise DataError(
                    f"{table.source}: target {column.name!r} holds {listed(strange)}, which the model does not know; "
                    f"its classes are {listed(self.target.classes)}"
                )
        elif not column.is_numeric:
            raise DataError(
                f"{table.source}: target {column.name!r} holds text such as {column.values[0]!r}; "
                "expected numbers, as in the training data"
            )
        outputs = self._outputs_for(table, unknown, keep)
        return scores_of(self.target, self.guess, outputs, self.target.encode(known))

    def _outputs_for(self, table: Table, unknown: Unknown, keep: Collection[str]) -> Array:
        self._check_columns(table, keep)
        table = self._converted(table)
        self._check_categories(table, unknown)
        return self.outputs(self.features.apply(table))

    def _converted(self, table: Table) -> Table:
        """With the columns, as far as they are there, converted as in training."""
        return Recognition(tuple(one for one in self.recognition.columns if one.name in table)).apply(table)

    @torch.no_grad()
    def outputs(self, encoded: Any) -> Array:
        """What the network itself gives for encoded rows: a scaled number, or one score per class.

        Args:
            encoded: what `encode` gave.

        Returns:
            One row per row.
        """
        inputs = torch.as_tensor(encoded, dtype=torch.float32)
        self.network.eval()
        parts = [self.network(inputs[i : i + _ROWS_AT_ONCE]) for i in range(0, len(inputs), _ROWS_AT_ONCE)]
        return np.asarray(torch.cat(parts).double().numpy())

    def _check_columns(self, table: Table, keep: Collection[str]) -> None:
        lacking = [name for name in self.columns if name not in table]
        if lacking:
            nearest = difflib.get_close_matches(lacking[0], table.names[:1000], n=1)
            hint = f" (is it {nearest[0]!r}?)" if nearest else ""
            raise DataError(
                f"{table.source} lacks {listed(lacking)}{hint}, which the model was trained on; "
                f"it has {listed(table.names)}"
            )
        known = {*self.columns, *self.ignored, self.target.name, *keep}
        more = [name for name in table.names if name not in known]
        if more:
            raise ValueError(
                f"{table.source} has {len(more)} columns more than the model: {listed(more)}; "
                f"it was trained on {listed(self.columns)}; leave the others out (drop), or hand them on (keep)"
            )

    def _check_categories(self, table: Table, unknown: Unknown) -> None:
        for name, categories in self.features.unknown(table).items():
            found = f"{table.source}: column {name!r} holds categories that the training rows did not have: "
            if unknown == "refuse":
                raise ValueError(f"{found}{listed(categories)}; correct them, or allow them (unknown 'zeros')")
            logger.warning("%s%s; they count as none of the known ones", found, listed(categories))
