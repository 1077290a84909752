"""Files of trained networks: plain values and tensors, read back without running anything in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cmalight.models import network_from_dict, network_to_dict
from cmalight.sealed import DamagedError, SealError, VersionError, seal, unseal
from cmalight.tables.encoding import FeatureEncoding
from cmalight.tables.recognition import Recognition
from cmalight.tables.targets import ClassTarget, Target, target_from_dict
from cmalight.tabular.model import TabularModel
from cmalight.training.checkpoints.forms import (
    FLAG,
    TEXT,
    DictOf,
    Form,
    ListOf,
    Maybe,
    Number,
    One,
    Record,
    Tagged,
    anything,
)

KIND = "cmalight-model"
VERSION = 1


def model_to_bytes(model: TabularModel) -> bytes:
    """The content of a model file: plain values and tensors."""
    content = {
        "network": network_to_dict(model.network),
        "weights": model.network.state_dict(),
        "features": model.features.to_dict(),
        "target": model.target.to_dict(),
        "ignored": list(model.ignored),
        "missing": list(model.missing),
        "guess": list(model.guess),
        "recognised": model.recognition.to_list(),
        **({"trusted": True} if model.trusted else {}),  # a key that earlier versions do not know
    }
    return seal(content, kind=KIND, version=VERSION)


def load_model(path: str | Path) -> TabularModel:
    """Reads a model file; nothing in it is executed, and what is not intact is refused.

    Args:
        path: of the file.

    Returns:
        The model.

    Raises:
        ValueError: if it is no model, or damaged, or of another version.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the model file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}; train a model and save it there")
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
            f"{path} is cut off, or not a model file of cmalight; expected one that was saved after a training"
        ) from error
    try:
        return _model_from(plain)
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ValueError(f"{path} does not describe a model: {reason}; train the model again") from error


def _kinds(key: str, **forms: dict[str, Form]) -> Tagged:
    """A record whose fields depend on the text at a key."""
    return Tagged(key, {kind: Record({key: TEXT, **fields}) for kind, fields in forms.items()})


_NUMBERS, _TEXTS = ListOf(Number()), ListOf(TEXT)
_CENTRED: dict[str, Form] = {"centre": _NUMBERS, "spread": _NUMBERS}
_SCALING = _kinds("kind", minmax={"low": _NUMBERS, "high": _NUMBERS}, standard=_CENTRED, robust=_CENTRED)
_COLUMN = _kinds(
    "kind",
    numeric={"name": TEXT, "fill": Maybe(Number())},
    categorical={"name": TEXT, "categories": _TEXTS, "fill": Maybe(TEXT)},
)
_RECOGNISED = _kinds(
    "kind",
    dates={"name": TEXT, "format": TEXT, "parts": _TEXTS},
    amounts={"name": TEXT, "sign": TEXT, "decimal": TEXT},
)
_MODEL = Record(
    {
        "network": Tagged("kind", {"layered": DictOf(str, anything)}),  # which checks itself
        "weights": DictOf(str, One((torch.Tensor,), "a tensor")),
        "features": Record({"columns": ListOf(_COLUMN), "scaling": _SCALING}),
        "target": _kinds(
            "task", regression={"name": TEXT, "scaling": _SCALING}, classification={"name": TEXT, "classes": _TEXTS}
        ),
        "ignored": _TEXTS,
        "missing": _TEXTS,
        "guess": _NUMBERS,
        "recognised": ListOf(_RECOGNISED),
        "trusted": FLAG,
    }
)


def _model_from(plain: dict[str, Any]) -> TabularModel:
    plain = {"trusted": False, **plain}
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
    guess = tuple(float(share) for share in plain["guess"])
    if len(guess) != target.outputs:
        raise ValueError("the guess does not fit the target")
    recognition = Recognition.from_list(plain["recognised"])
    ignored, missing = tuple(plain["ignored"]), tuple(plain["missing"])
    return TabularModel(network, features, target, ignored, missing, guess, recognition, plain["trusted"])


def _check_encoding(features: FeatureEncoding, target: Target) -> None:
    names = [*features.names, target.name]
    lists = [names, *(feature.categories for feature in features.categorical)]
    if isinstance(target, ClassTarget):
        lists.append(target.classes)
    elif target.scaling.columns != 1:
        raise ValueError("the target is not scaled as one number")
    if any(len(set(some)) < len(some) for some in lists):
        raise ValueError("a name is there twice")
