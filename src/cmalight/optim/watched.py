"""What the optimizers of this package share: they may undo steps, and their state_dict has all that this needs."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from cmalight.evaluation.objective import Objective
from cmalight.evaluation.ranks import Ranks, ranks_of
from cmalight.evaluation.state import RunState

_CONTROL = "control"  # the key of the control's state, in the first parameter group of a state_dict
_SNAPSHOTS = "snapshots"  # the key of the snapshots in a state_dict


class WatchedOptimizer(Optimizer):
    """An optimizer that may undo steps.

    `state_dict()` has the state of the steps, the numbers of the control, and snapshots to go back to, so that a run
    can be saved after any step.
    """

    @abstractmethod
    def _saved_control(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The state of the control.

        Returns:
            Plain numbers and lists of numbers, always under the same keys; and the snapshots as tensors and plain
            values, or None if there are none.
        """

    @abstractmethod
    def _load_control(self, numbers: dict[str, Any] | None, snapshots: dict[str, Any] | None) -> None:
        """Take what `_saved_control` gave; no numbers if the state_dict is that of another optimizer."""

    @abstractmethod
    def _load_steps(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the steps themselves, as of a plain optimizer."""

    def state_dict(self) -> dict[str, Any]:
        """As in torch, with the control's state under one key, and the snapshots.

        Returns:
            What `load_state_dict` takes.
        """
        content = super().state_dict()
        numbers, snapshots = self._saved_control()
        content["param_groups"][0][_CONTROL] = numbers
        if snapshots is not None:
            content[_SNAPSHOTS] = snapshots
        return content

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; training resumes bit for bit, also inside a window or an epoch.

        Args:
            state_dict: From `state_dict`, or from the plain optimizer; then the control starts again.
        """
        saved = dict(state_dict)
        snapshots = saved.pop(_SNAPSHOTS, None)
        self._load_steps(saved)  # also if a hook puts another state_dict in the place of this one
        self._load_control(self.param_groups[0].pop(_CONTROL, None), copy.deepcopy(snapshots))

    def __getstate__(self) -> dict[str, Any]:
        """Without the hooks, as in torch, and without a `step` that a scheduler has wrapped."""
        found = self.__dict__.items()
        return {name: value for name, value in found if name != "step" and not name.startswith("_optimizer_")}


def ranks_for(run_state: RunState, objective: Any) -> Ranks:
    """The processes that train together; the objective may name their group."""
    model = run_state.modules[0] if run_state.modules else None
    return ranks_of(model, objective.process_group if isinstance(objective, Objective) else None)


def refuse_maximize(groups: list[dict[str, Any]]) -> None:
    """A control that keeps what lowers the loss cannot watch an optimizer that raises it."""
    if any(group.get("maximize") for group in groups):
        raise ValueError("maximize=True cannot be watched: negate the loss instead")


def missing_parameters(optimizer: Optimizer, model: nn.Module) -> tuple[int, int]:
    """The number of trainable parameters of the model that are not the optimizer's, and of all trainable ones.

    A copy of the model, none of whose parameters is the optimizer's, is refused.
    """
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    missing = len(trained - known)
    if trained and missing == len(trained):
        raise ValueError(
            f"{type(optimizer).__name__} has none of the parameters of the model, or of the objective's model: pass "
            "the model that it trains, not a copy"
        )
    return missing, len(trained)


def refuse_unequal(counts: Iterable[float], what: str = "have taken {} steps") -> None:
    """All ranks must take the same number of steps."""
    found = sorted({int(count) for count in counts})
    if len(found) > 1:
        raise RuntimeError(
            f"The ranks {what.format(found)}: give every rank equally many batches, "
            "for example by a DistributedSampler with drop_last=True"
        )


def refuse_unequal_loaders(objective: Any, ranks: Ranks) -> None:
    """Say so before the first step if the ranks have unequal numbers of batches: they would wait for each other."""
    if not ranks.alone and isinstance(objective, Objective):
        refuse_unequal(ranks.lengths(objective.data), "have {} batches")


def is_zero(lr: float | Tensor) -> bool:
    """Whether a learning rate is 0; a tensor on an accelerator is not waited for, and counts as positive."""
    if isinstance(lr, Tensor):
        return lr.is_cpu and not bool(lr)
    return lr == 0.0
