"""CMALight: a mini-batch optimizer with a watchdog, for PyTorch."""

from cmalight.control import Outcome
from cmalight.data.batches import TensorBatches
from cmalight.objective import Objective
from cmalight.optim import CMA, IG, CMALight, Epoch, EpochReport
from cmalight.training import FitResult, History, Status, fit

__version__ = "0.1.0"

__all__ = [
    "CMA",
    "IG",
    "CMALight",
    "Epoch",
    "EpochReport",
    "FitResult",
    "History",
    "Objective",
    "Outcome",
    "Status",
    "TensorBatches",
    "__version__",
    "fit",
]
