"""Wrappers around an optimizer that pass on torch's methods only, taught to pass on ours."""

from __future__ import annotations

import sys
from typing import Any

_OURS = ("epoch", "restart", "evaluations")


class _PassedOn:
    """An attribute of a wrapper that is the wrapped optimizer's; where that has none, neither has the wrapper."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: Any, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.optimizer, self._name)


def teach_wrappers() -> None:
    """Accelerate's `prepare` puts an optimizer into a class that hides everything but torch's own methods.

    It is asked for whenever an optimizer is made, copied or loaded, and Accelerate loads what it wraps.
    """
    wrapper = getattr(sys.modules.get("accelerate.optimizer"), "AcceleratedOptimizer", None)
    for name in _OURS:
        if wrapper is not None and not hasattr(wrapper, name):
            setattr(wrapper, name, _PassedOn(name))
