"""f over the training data of a run, for its two readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from cmalight.evaluation.objective import Objective


class Objectives:
    """The objective that judges epochs, limited by the training clock, and the one of the history, beside it."""

    def __init__(self, judging: Objective, measuring: Objective, check_limits: Callable[[], None]) -> None:
        self._check_limits = check_limits
        self.use(judging, measuring)

    def use(self, judging: Objective, measuring: Objective) -> None:
        self.judging, self.measuring = judging, measuring
        self.judging.before_batch = self._check_limits

    def go_on_as(self, judging: Objective, measuring: Objective) -> None:
        """Others, in the state of those before."""
        states = self.states()
        self.use(judging, measuring)
        self.load_states(states)

    def states(self) -> list[dict[str, Any]]:
        return [objective.state_dict() for objective in (self.judging, self.measuring)]

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        for objective, state in zip((self.judging, self.measuring), states, strict=True):
            objective.load_state_dict(state)


def eager_objectives(
    model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], feed: Iterable[Any]
) -> tuple[Objective, Objective]:
    judging, measuring = (Objective(model, loss_fn, feed, process_group=False) for _ in range(2))
    return judging, measuring
