"""fit(): training in one call."""

from cmalight.training.callbacks import Callback, TensorBoard
from cmalight.training.checkpoint import CheckpointError
from cmalight.training.fitting import FitResult, fit
from cmalight.training.history import EpochRecord, History
from cmalight.training.solvers import Solver, known_solvers, make_solver
from cmalight.training.stopping import Status
from cmalight.training.weights import ClassWeighted, SampleWeighted, with_weights

__all__ = [
    "Callback",
    "CheckpointError",
    "ClassWeighted",
    "EpochRecord",
    "FitResult",
    "History",
    "SampleWeighted",
    "Solver",
    "Status",
    "TensorBoard",
    "fit",
    "known_solvers",
    "make_solver",
    "with_weights",
]
