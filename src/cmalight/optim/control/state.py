"""What a control remembers between epochs: typed, and kept as plain numbers in `param_groups[0]`.

There torch saves, loads and copies it; per-parameter state would be cast to the parameter's dtype, and attributes are
lost on deepcopy.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

UNKNOWN = math.inf  # stands for a function value that is not known; unlike NaN it equals itself after a round trip

Numbers = TypeVar("Numbers")


def finite_or_unknown(value: float) -> float:
    """A function value that rules can compare: nothing is above +inf, and NaN would compare with nothing."""
    return value if math.isfinite(value) else UNKNOWN


@dataclass(frozen=True)
class ControlState:
    """Of every rule; what a rule remembers beside it is the rule's own `Memory`.

    Attributes:
        f_0: f(w⁰), or the sample's mean loss there.
        phi: φ^k.
        f_current: f(w^k).
        sample_first: The sample's mean loss at w⁰.
        sample_current: The same at w^k.
        zeta_0: ζ⁰.
        height: ζ before a warm-up or the end of a budget makes it smaller.
        factor: By which they did at the last step.
        epochs: How many epochs were concluded.
        steps: How many steps were taken in them, and in the judged parts of others.
        steps_apart: How many of them were in others.
        samples: N, of the longest epoch.
        epochs_still: How many epochs in a row ended at w^k.
        epochs_alike: How many in a row changed neither φ nor ζ.
        stall_reported: Whether a stall was warned about.
        negative_loss_seen: Whether a loss was negative.
        evaluations: How many full evaluations were made.
        evaluations_reported: How many of them are in a report.
    """

    f_0: float = UNKNOWN
    phi: float = UNKNOWN
    f_current: float = UNKNOWN
    sample_first: float = UNKNOWN
    sample_current: float = UNKNOWN
    zeta_0: float = UNKNOWN
    height: float = UNKNOWN
    factor: float = 1.0
    epochs: int = 0
    steps: int = 0
    steps_apart: int = 0
    samples: float = 0
    epochs_still: int = 0
    epochs_alike: int = 0
    stall_reported: int = 0
    negative_loss_seen: int = 0
    evaluations: int = 0
    evaluations_reported: int = 0


def read(group: dict[str, Any], kind: type[Numbers]) -> Numbers:
    """The numbers of a dataclass, out of a parameter group."""
    made: Any = kind
    numbers: Numbers = made(*[group[name] for name in made.__match_args__])
    return numbers


def write(group: dict[str, Any], numbers: Any) -> None:
    """This, and `change`, is where control state gets into a parameter group."""
    group.update(vars(numbers))


def change(group: dict[str, Any], kind: type[Any], changes: dict[str, Any]) -> None:
    """Some of its numbers, several times an epoch, so without making the dataclass twice."""
    if unknown := changes.keys() - kind.__match_args__:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    group.update(changes)


def complete(group: dict[str, Any], kind: type[Any]) -> None:
    """Give a group that comes from elsewhere the numbers it lacks."""
    for name, value in vars(kind()).items():
        group.setdefault(name, value)


def require_free_names(memory: type[Any], taken: Collection[str]) -> None:
    """What a rule remembers shares a group with control state and settings, and either would overwrite the other."""
    if clash := names(memory) & {"params", *taken, *names(ControlState)}:
        raise ValueError(
            f"Invalid field names of {memory.__qualname__}: {', '.join(sorted(clash))}; the parameter groups have "
            "entries of these names already, so what a rule remembers has to be called otherwise"
        )


def names(*kinds: type[Any]) -> set[str]:
    """What these dataclasses are called in a group."""
    return {name for kind in kinds for name in kind.__match_args__}
