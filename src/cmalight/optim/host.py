"""A torch optimizer that owns one window of steps, copies its state at the start, and can roll it back."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from cmalight.evaluation.ranks import Ranks, ranks_of
from cmalight.evaluation.state import RunState
from cmalight.optim.window import Window

CONTROL = "control"  # the key of the control's state, in the first parameter group of a state_dict
WINDOW = "window"  # the key of the open window in a state_dict


class WindowOptimizer(Optimizer):
    """The host of a window. Subclasses say when a window ends and by which rule it is judged.

    The window is the only place where steps that are not judged yet are kept. `state_dict()` has it, so that a run can
    be saved at any step.
    """

    window_type: ClassVar[type[Window]] = Window
    window: Window | None
    run_state: RunState
    packed_window: dict[str, Any] | None = None  # of a state_dict, until the modules are known that it belongs to

    @abstractmethod
    def control_state(self) -> dict[str, Any]:
        """The state of the control.

        Returns:
            Plain numbers and lists of numbers.
        """

    @abstractmethod
    def load_control_state(self, saved: dict[str, Any] | None) -> None:
        """Take what `control_state` gave.

        Args:
            saved: None where a state_dict has none, as that of another optimizer.
        """

    @property
    def stepper(self) -> Optimizer:
        """The optimizer whose steps and state these are."""
        return self

    def watch(self, *modules: nn.Module) -> None:
        """Say which modules' buffers are rolled back with the weights.

        Args:
            *modules: The model and, where it is a module, the loss.
        """
        self.run_state = RunState(self.stepper, modules)

    def open_window(self) -> Window:
        """Begin a window here, in the memory of the last one where it fits.

        Returns:
            The window.
        """
        last, self.window = self.window, None  # whose memory is overwritten: never roll back to a part of it
        snapshot = self.run_state.snapshot() if last is None else self.run_state.refresh(last.snapshot)
        self.window = self.window_type(snapshot, versions=self._versions())
        return self.window

    def window_for_step(self) -> Window:
        """The open window; one that has no step yet begins anew where somebody has changed the weights since.

        Returns:
            The window.
        """
        window = self.window
        if window is None:
            return self.open_window()
        if not window.steps and window.versions != self._versions():
            modules = window.snapshot.modules
            is_resumed = window.versions is None
            window = self.open_window()
            if is_resumed:  # the buffers are those of before the forward pass of this step
                window.snapshot.modules = modules
        return window

    def _versions(self) -> int:
        return sum([p._version for p in self.run_state.parameters])

    def roll_back(self) -> None:
        """Put weights, buffers and the optimizer's state back to where the window began, bit for bit."""
        if self.window is not None:
            try:
                self.run_state.restore(self.window.snapshot)
            except KeyboardInterrupt:  # never leave one part rolled back and another not
                self.run_state.restore(self.window.snapshot)
                raise

    def state_dict(self) -> dict[str, Any]:
        """As in torch, with the control's state under one key and, where steps are not judged yet, the open window.

        Returns:
            What `load_state_dict` takes.
        """
        content = super().state_dict()
        content["param_groups"][0][CONTROL] = self.control_state()
        if self.packed_window is not None:
            content[WINDOW] = self.packed_window
        elif (window := self.window) is not None:
            packed = self.run_state.pack(window.snapshot, weights=window.steps > 0)
            content[WINDOW] = {**window.state_dict(), "snapshot": packed}
        return content

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; training resumes bit for bit, also inside a window.

        Args:
            state_dict: From `state_dict`, or from the plain optimizer; then the control starts again.
        """
        saved = dict(state_dict)
        packed = saved.pop(WINDOW, None)
        self.load_stepper(saved)  # also where a hook puts another state_dict in the place of this one
        self.window = None
        self.load_control_state(self.param_groups[0].pop(CONTROL, None))
        self.packed_window = copy.deepcopy(packed)

    def unpack_window(self) -> None:
        """Open the window that a state_dict had; the modules whose buffers it holds are known now."""
        if (packed := self.packed_window) is not None:
            self.packed_window = None
            self.window = self.window_type(self.run_state.unpack(packed["snapshot"]))
            self.window.load_state_dict(packed)

    @abstractmethod
    def load_stepper(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the steps themselves.

        Args:
            state_dict: As of a plain optimizer.
        """

    def ranks(self, objective: Any) -> Ranks:
        """The processes that train together.

        Args:
            objective: May name the process group.

        Returns:
            This process and its group.
        """
        return ranks_of(getattr(objective, "model", None), getattr(objective, "process_group", None))


def attributes_to_copy(optimizer: Optimizer) -> dict[str, Any]:
    """What deepcopy and pickle take along: not the hooks, as in torch, nor a `step` that a scheduler has wrapped."""
    own = optimizer.__dict__.items()
    return {name: value for name, value in own if name != "step" and not name.startswith("_optimizer_")}


def modules_of(objective: Any) -> tuple[nn.Module, ...]:
    """The modules whose buffers a forward pass changes; none where a plain callable is the objective."""
    return tuple(getattr(objective, "modules", ()))


def refuse_maximize(groups: list[dict[str, Any]]) -> None:
    """A control that keeps what lowers the loss cannot watch an optimizer that raises it."""
    if any(group.get("maximize") for group in groups):
        raise ValueError("maximize=True cannot be watched: negate the loss instead")


def refuse_unequal(rows: list[tuple[float, ...]], what: str = "have taken {} steps") -> None:
    """All ranks must take the same number of steps, which is the first value that each of them gave."""
    counts = sorted({int(row[0]) for row in rows})
    if len(counts) > 1:
        raise RuntimeError(
            f"The ranks {what.format(counts)}: give every rank equally many batches, "
            "for example by a DistributedSampler with drop_last=True"
        )


def refuse_unequal_loaders(objective: Any, ranks: Ranks) -> None:
    """Say so before the first step where the ranks have unequal numbers of batches: they would wait for each other."""
    data = getattr(objective, "data", None)
    if not ranks.alone and data is not None:
        try:
            own = len(data)
        except TypeError:  # a stream
            own = -1
        refuse_unequal(ranks.gather(float(own)), "have {} batches")


def is_zero(lr: float | Tensor) -> bool:
    """Whether a learning rate is 0; a tensor on an accelerator is not waited for, and counts as positive."""
    if isinstance(lr, Tensor):
        return lr.is_cpu and not bool(lr)
    return lr == 0.0
