"""Optimizers for PyTorch that undo bad steps: `Auto`, `Controlled`, the published CMALight, and a test-bed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmalight.evaluation.batches import TensorBatches
    from cmalight.evaluation.objective import Objective
    from cmalight.integrations.sklearn import WatchedClassifier as WatchedClassifier
    from cmalight.integrations.sklearn import WatchedRegressor as WatchedRegressor
    from cmalight.optim import (
        CMA,
        COFF,
        IG,
        SOAP,
        Auto,
        Certified,
        CMALight,
        Controlled,
        Epoch,
        EpochReport,
        WindowReport,
    )
    from cmalight.rules.outcome import Outcome
    from cmalight.training import FitResult, History, Status, fit

__version__ = "0.4.0"

__all__ = [
    "CMA",
    "COFF",
    "IG",
    "SOAP",
    "Auto",
    "CMALight",
    "Certified",
    "Controlled",
    "Epoch",
    "EpochReport",
    "FitResult",
    "History",
    "Objective",
    "Outcome",
    "Status",
    "TensorBatches",
    "WindowReport",
    "__version__",
    "fit",
]

# Imported when first asked for, so that `cmalight --help` does not wait for torch. What needs more than torch is not
# in __all__, so that `from cmalight import *` works without it.
_HOMES = {
    "optim": (
        *("CMA", "COFF", "IG", "SOAP", "Auto", "CMALight", "Certified", "Controlled"),
        *("Epoch", "EpochReport", "WindowReport"),
    ),
    "training": ("FitResult", "History", "Status", "fit"),
    "evaluation.objective": ("Objective",),
    "evaluation.batches": ("TensorBatches",),
    "rules.outcome": ("Outcome",),
    "integrations.sklearn": ("WatchedClassifier", "WatchedRegressor"),
}
_HOME_OF = {name: f"cmalight.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cmalight' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOME_OF})
