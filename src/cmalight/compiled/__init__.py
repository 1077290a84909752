"""Training steps and evaluations as native loops, for models, losses and optimizers that are on a white list.

`layers` and `steps` hold the white list: exact types with options that the kernel computes as torch does.
`kernel.cpp` is one source for all shapes; `library` builds it once per machine. What is not on the list raises
`CannotCompile` with the reason. The kernel calls no user code, so nothing has to be captured or guarded.
"""

from cmalight.compiled.evaluator import Evaluator
from cmalight.compiled.interface import CannotCompile
from cmalight.compiled.program import Program, compile_training

__all__ = ["CannotCompile", "Evaluator", "Program", "compile_training"]
