"""A trained network with its encoding: applied to tables, written to a file, read back without running code from it."""

from __future__ import annotations

import csv
import io
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cmalight.models import network_from_dict, network_to_dict
from cmalight.sealed import DamagedError, SealError, VersionError, seal, unseal
from cmalight.tables.encoding import ClassTarget, FeatureEncoding, Target, target_from_dict
from cmalight.tables.scaling import Array
from cmalight.tables.table import Reading, Table, listed
from cmalight.training.schema import TEXT, DictOf, ListOf, Maybe, Number, One, Record, Tagged, anything

KIND = "cmalight-model"
VERSION = 1

Unknown = Literal["zeros", "refuse"]

logger = logging.getLogger("cmalight.tabular")

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Predictions:
    """One value per row, a number in the units of the training data or the name of a class, and how sure that is."""

    target: str
    values: npt.NDArray[Any]
    probabilities: Array | None

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.probabilities is None:
            writer.writerow(["prediction"])
            writer.writerows([f"{value:.8g}"] for value in self.values)
        else:
            writer.writerow(["prediction", "probability"])
            writer.writerows([v, f"{p:.4f}"] for v, p in zip(self.values, self.probabilities, strict=True))
        return text.getvalue()


@dataclass(frozen=True)
class TabularModel:
    """What `train_on_table` made.

    Args:
        ignored: columns that were left out of the training and may be there again.
        missing: cells that stood for a missing value in the training data.
    """

    network: nn.Module
    features: FeatureEncoding
    target: Target
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def reading(self, reading: Reading) -> Reading:
        """How a file has to be read so that its cells mean what they meant in the training data."""
        as_text = frozenset(feature.name for feature in self.features.categorical)
        missing = (*reading.missing, *self.missing)
        return replace(reading, as_text=as_text, missing=missing, target=self.target.name)

    def predict(self, table: Table, *, unknown: Unknown = "zeros") -> Predictions:
        """Predicts each row; the target may be among the columns and is not looked at.

        Args:
            unknown: a category that the training rows did not have is none of the known ones ("zeros"), or an error.
        """
        self._check_columns(table)
        self._check_categories(table, unknown)
        outputs = self.outputs(self.features.apply(table))
        if isinstance(self.target, ClassTarget):
            names = np.array(self.target.decode(outputs), dtype=object)
            return Predictions(self.target.name, names, _largest_probability(outputs))
        return Predictions(self.target.name, self.target.decode(outputs), None)

    @torch.no_grad()
    def outputs(self, encoded: Any) -> Array:
        """What the network itself gives for encoded rows: a scaled number, or one score per class."""
        inputs = torch.as_tensor(encoded, dtype=torch.float32)
        self.network.eval()
        parts = [self.network(inputs[i : i + _ROWS_AT_ONCE]) for i in range(0, len(inputs), _ROWS_AT_ONCE)]
        return np.asarray(torch.cat(parts).double().numpy())

    def _check_columns(self, table: Table) -> None:
        known = {*self.features.names, *self.ignored, self.target.name}
        more = [name for name in table.names if name not in known]
        if more:
            raise ValueError(
                f"{table.source} has {len(more)} columns more than the model: {listed(more)}; "
                f"it was trained on {listed(self.features.names)}; leave the others out (drop)"
            )

    def _check_categories(self, table: Table, unknown: Unknown) -> None:
        present = table.only([name for name in self.features.names if name in table.names])
        if len(present.columns) < len(self.features.names):
            return  # the encoding says which column is missing
        for name, categories in self.features.unknown(table).items():
            found = f"{table.source}: column {name!r} holds categories that the training rows did not have: "
            if unknown == "refuse":
                raise ValueError(f"{found}{listed(categories)}; correct them, or allow them (unknown 'zeros')")
            logger.warning("%s%s; they count as none of the known ones", found, listed(categories))


def _largest_probability(outputs: Array) -> Array:
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(shifted.max(axis=1) / shifted.sum(axis=1))


def model_to_bytes(model: TabularModel) -> bytes:
    """The content of a model file: plain values and tensors."""
    content = {
        "network": network_to_dict(model.network),
        "weights": model.network.state_dict(),
        "features": model.features.to_dict(),
        "target": model.target.to_dict(),
        "ignored": list(model.ignored),
        "missing": list(model.missing),
    }
    return seal(content, kind=KIND, version=VERSION)


def load_model(path: str | Path) -> TabularModel:
    """Reads a model file; nothing in it is executed, and what is not intact is refused."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the model file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}; `cmalight train ... --save {path}` writes one")
    try:
        plain = unseal(path.read_bytes(), kind=KIND, version=VERSION)
    except VersionError as error:
        raise ValueError(
            f"{path} has model format {error.found!r}, and this cmalight reads format {VERSION}; "
            "update it (pip install -U cmalight), or train the model again"
        ) from error
    except DamagedError as error:
        raise ValueError(
            f"{path} is damaged: its content does not fit its checksum; copy it again, or train the model again"
        ) from error
    except SealError as error:
        raise ValueError(
            f"{path} is cut off, or not a model file of cmalight; expected one that `cmalight train --save` wrote"
        ) from error
    try:
        return _model_from(plain)
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ValueError(f"{path} does not describe a model: {reason}; train the model again") from error


_MINMAX = Record({"kind": TEXT, "low": ListOf(Number()), "high": ListOf(Number())})
_CENTRED = Record({"kind": TEXT, "centre": ListOf(Number()), "spread": ListOf(Number())})
_SCALING = Tagged("kind", {"minmax": _MINMAX, "standard": _CENTRED, "robust": _CENTRED})
_MODEL = Record(
    {
        "network": Tagged("kind", {"layered": DictOf(str, anything)}),  # which checks itself
        "weights": DictOf(str, One((torch.Tensor,), "a tensor")),
        "features": Record(
            {
                "columns": ListOf(
                    Tagged(
                        "kind",
                        {
                            "numeric": Record({"kind": TEXT, "name": TEXT, "fill": Maybe(Number())}),
                            "categorical": Record(
                                {"kind": TEXT, "name": TEXT, "categories": ListOf(TEXT), "fill": Maybe(TEXT)}
                            ),
                        },
                    )
                ),
                "scaling": _SCALING,
            }
        ),
        "target": Tagged(
            "task",
            {
                "regression": Record({"task": TEXT, "name": TEXT, "scaling": _SCALING}),
                "classification": Record({"task": TEXT, "name": TEXT, "classes": ListOf(TEXT)}),
            },
        ),
        "ignored": ListOf(TEXT),
        "missing": ListOf(TEXT),
    }
)


def _model_from(plain: dict[str, Any]) -> TabularModel:
    _MODEL("the model", plain)
    weights: dict[str, torch.Tensor] = plain["weights"]
    with torch.device("meta"):  # takes no memory, so that a file cannot ask for more than it brings
        network = network_from_dict(plain["network"])
    network.load_state_dict(weights, assign=True)
    features = FeatureEncoding.from_dict(plain["features"])
    target = target_from_dict(plain["target"])
    if (plain["network"]["features"], plain["network"].get("outputs", 1)) != (features.width, target.outputs):
        raise ValueError("the network does not fit the encoding")
    for name, weight in weights.items():
        if weight.dtype != torch.float32 or not bool(torch.isfinite(weight).all()):
            raise ValueError(f"the weights {name} are not finite numbers of type float32")
    _check_encoding(features, target)
    return TabularModel(network, features, target, tuple(plain["ignored"]), tuple(plain["missing"]))


def _check_encoding(features: FeatureEncoding, target: Target) -> None:
    names = [*features.names, target.name]
    lists = [names, *(feature.categories for feature in features.categorical)]
    if isinstance(target, ClassTarget):
        lists.append(target.classes)
    elif target.scaling.columns != 1:
        raise ValueError("the target is not scaled as one number")
    if any(len(set(some)) < len(some) for some in lists):
        raise ValueError("a name is there twice")
