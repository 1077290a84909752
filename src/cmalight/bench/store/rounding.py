"""Results with fewer digits, to publish them as a small file; what a control compared keeps all of its own."""

from __future__ import annotations

from cmalight.bench.spec.study import Plain
from cmalight.rules.outcome import Outcome

SECONDS, VALUES = 6, 7  # significant digits: of times, and of everything else that is measured
_UNJUDGED = Outcome.UNCONTROLLED.name.lower()
_VALUES = ("train_loss", "test_loss", "test_accuracy", "f_tilde", "lr", "alpha")


def rounded(content: Plain) -> Plain:
    """A result whose columns of epochs have fewer digits, and which says so; a second time changes nothing.

    An epoch that a control judged keeps its values: they may differ by less than such digits show, and are compared.

    Args:
        content: of a run's file.

    Returns:
        Another one; its figures of the run as a whole are the same.
    """
    columns = dict(content["epochs"])
    judged = [outcome != _UNJUDGED for outcome in columns.get("outcome", ())]
    for name in columns.keys() & set(_VALUES):
        pairs = zip(columns[name], judged, strict=True)
        columns[name] = [value if is_exact else _shorter(value, VALUES) for value, is_exact in pairs]
    columns["seconds"] = [_shorter(value, SECONDS) for value in columns.get("seconds", ())]
    return {**content, "epochs": columns, "rounded": True}


def _shorter(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")
