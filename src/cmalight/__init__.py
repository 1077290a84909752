"""CMALight: a mini-batch optimizer with a watchdog, for PyTorch."""

from cmalight.control import Outcome
from cmalight.objective import Objective
from cmalight.optim import CMA, IG, CMALight, Epoch, EpochReport

__version__ = "0.1.0"

__all__ = ["CMA", "IG", "CMALight", "Epoch", "EpochReport", "Objective", "Outcome", "__version__"]
