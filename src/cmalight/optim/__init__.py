"""The optimizers. Each owns its window of steps; the rules decide whether to keep it."""

from cmalight.optim.auto import Auto
from cmalight.optim.certified import Certified
from cmalight.optim.cma import CMA
from cmalight.optim.cmalight import CMALight
from cmalight.optim.coff import COFF
from cmalight.optim.controlled import Controlled
from cmalight.optim.epoch import Epoch
from cmalight.optim.ig import IG
from cmalight.optim.reports import EpochReport, WindowReport
from cmalight.optim.soap import SOAP

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
    "WindowReport",
]
