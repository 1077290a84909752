"""The optimizers, and the bracket and the report they share."""

from cmalight.optim.bracket.epoch import Epoch
from cmalight.optim.cma import CMA
from cmalight.optim.cmalight import CMALight
from cmalight.optim.control.report import EpochReport
from cmalight.optim.controlled import Controlled
from cmalight.optim.ig import IG

__all__ = ["CMA", "IG", "CMALight", "Controlled", "Epoch", "EpochReport"]
