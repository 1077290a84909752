"""fit(): training in one call."""

from cmalight.training.checkpoints.checkpoint import CheckpointError
from cmalight.training.data.weights import ClassWeighted, SampleWeighted, with_weights
from cmalight.training.fitting import FitResult, fit
from cmalight.training.records.callbacks import Callback, TensorBoard
from cmalight.training.records.history import EpochRecord, History
from cmalight.training.records.stopping import Status

__all__ = [
    "Callback",
    "CheckpointError",
    "ClassWeighted",
    "EpochRecord",
    "FitResult",
    "History",
    "SampleWeighted",
    "Status",
    "TensorBoard",
    "fit",
    "with_weights",
]
