"""fit(): training in one call."""

from cmalight.training.checkpoint import CheckpointError
from cmalight.training.data import SampleWeighted, with_weights
from cmalight.training.fitting import FitResult, fit
from cmalight.training.history import EpochRecord, History, TensorBoard
from cmalight.training.measuring import Measured, accuracy, measure
from cmalight.training.solvers import Solver, known_solvers, make_solver
from cmalight.training.stopping import Status
from cmalight.training.tracking import Callback, Position, StepCallback

__all__ = [
    "Callback",
    "CheckpointError",
    "EpochRecord",
    "FitResult",
    "History",
    "Measured",
    "Position",
    "SampleWeighted",
    "Solver",
    "Status",
    "StepCallback",
    "TensorBoard",
    "accuracy",
    "fit",
    "known_solvers",
    "make_solver",
    "measure",
    "with_weights",
]
