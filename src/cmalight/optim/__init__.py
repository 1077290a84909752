"""The optimizers, and the bracket and the report they share."""

from cmalight.optim.cma import CMA
from cmalight.optim.cmalight import CMALight
from cmalight.optim.controlled import Controlled
from cmalight.optim.epoch import Epoch
from cmalight.optim.ig import IG
from cmalight.optim.report import EpochReport

__all__ = ["CMA", "IG", "CMALight", "Controlled", "Epoch", "EpochReport"]
