"""fit(): training in one call."""

from cmalight.training.callbacks import Callback, TensorBoard
from cmalight.training.checkpoint import CheckpointError
from cmalight.training.fitting import FitResult, fit
from cmalight.training.history import EpochRecord, History
from cmalight.training.stopping import Status

__all__ = ["Callback", "CheckpointError", "EpochRecord", "FitResult", "History", "Status", "TensorBoard", "fit"]
