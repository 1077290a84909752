"""What a function of tensors does, as a list of torch's operations, from running it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from cmalight.compiled.layout import CannotCompile
from cmalight.compiled.recorded.draws import Draw, draw_of, is_draw

_NOT_BEFORE = "the random numbers of {} cannot be drawn before the step"
_LOOKS = "the model looks at the values of its tensors, as float(x), x.numpy() or `if x > 0` do"
# Nothing below torch's functions sees these.
_READING = (Tensor.numpy, Tensor.tolist, Tensor.item, Tensor.data_ptr, Tensor.__array__, Tensor.__dlpack__)


class NotWritten(Exception):  # noqa: N818 - it is a reason, which leads to torch's compiler
    """Why a function is not written out in C++."""


@dataclass(frozen=True)
class Ref:
    """A tensor among the values of a recording."""

    number: int


@dataclass(frozen=True)
class Call:
    """An operation on values.

    Attributes:
        operation: of torch's.
        arguments: a tensor is a Ref.
        options: by their names.
        outputs: the values it makes.
        results: these as tensors, for their shapes and types.
        places: where they are among what it returns.
    """

    operation: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    outputs: tuple[int, ...]
    results: tuple[Tensor, ...]
    places: tuple[int, ...]

    @property
    def name(self) -> str:
        """Without what marks one that works in place."""
        return str(self.operation._schema.name).removeprefix("aten::").removesuffix("_")

    @property
    def inputs(self) -> list[int]:
        return [leaf.number for leaf in tree_leaves((self.arguments, self.options)) if isinstance(leaf, Ref)]


@dataclass(frozen=True)
class Recording:
    """All calls that the outputs need.

    Attributes:
        inputs: the values of the tensors that were given.
        constants: tensors that are neither inputs nor made by a call.
        draws: all random numbers that were drawn, in their order.
        calls: in their order.
        outputs: the values of the results.
        changes: for the place of each buffer that was changed, its value before and after.
    """

    inputs: tuple[int, ...]
    constants: dict[int, Tensor]
    draws: dict[int, Draw]
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]
    changes: dict[int, tuple[int, int]]

    def without_changes(self) -> Recording:
        """What the outputs alone need."""
        return _trimmed(replace(self, changes={}))

    def reads(self, number: int) -> bool:
        """Whether a call needs that value."""
        return any(number in call.inputs for call in self.calls)


def record(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    *,
    is_known: Callable[[Any], bool],
    buffers: Sequence[Tensor] = (),
    parameters: Sequence[Tensor] = (),
) -> Recording:
    """Runs `function` on `inputs`.

    Args:
        function: of tensors.
        inputs: of the shapes and types that it is recorded for.
        is_known: operations for which this is False are taken apart into others, where torch knows how.
        buffers: tensors that it may change in place.
        parameters: those among the inputs that it may not.

    Raises:
        CannotCompile: it looks at the values of its tensors, draws random numbers that depend on them, changes a
            buffer in another way than by one of torch's operations, or a tensor that is none of the buffers.
        NotWritten: it changes a tensor that others share.
    """
    recorder = _Recorder(is_known)
    numbers = tuple(recorder.number(t) for t in inputs)
    recorder.constants.clear()
    before = [(recorder.number(t), t._version) for t in buffers]
    with _NotReading(), recorder:
        results = function(*inputs)
    outputs = tuple(recorder.number(t) for t in results)
    changes = {}
    for place, (buffer, (number, version)) in enumerate(zip(buffers, before, strict=True)):
        if recorder.number(buffer) != number:
            changes[place] = number, recorder.number(buffer)
        elif buffer._version != version:
            raise CannotCompile("the model changes a buffer in a way that cannot be recorded")
    carried = {_storage(t) for t in buffers}
    if any(_storage(t) in recorder.overwritten for t in parameters):
        raise CannotCompile("the forward pass changes a parameter")
    if any(_storage(t) in recorder.overwritten - carried for t in recorder.constants.values()):
        raise CannotCompile("the model changes a tensor that is none of its buffers")
    calls = tuple(recorder.calls)
    return _trimmed(Recording(numbers, recorder.constants, recorder.draws, calls, outputs, changes))


def _trimmed(recording: Recording) -> Recording:
    """Without calls and constants that nothing needs."""
    needed, calls = {*recording.outputs, *(after for _, after in recording.changes.values())}, []
    for call in reversed(recording.calls):
        if needed & set(call.outputs):
            calls.append(call)
            needed.update(call.inputs)
    if any(not result.numel() for call in calls for result in call.results):
        raise NotWritten("a tensor is empty")
    changed = {before for before, _ in recording.changes.values()}
    constants = {number: t for number, t in recording.constants.items() if number in needed - changed}
    return replace(recording, constants=constants, calls=tuple(reversed(calls)))


class _NotReading(TorchFunctionMode):
    """What a step does with values that it has read would be that of the batch that was recorded."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READING:
            raise CannotCompile(_LOOKS)
        return func(*args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, is_known: Callable[[Any], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.constants: dict[int, Tensor] = {}
        self.draws: dict[int, Draw] = {}
        self.overwritten: set[int] = set()  # storages
        self._is_known = is_known
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._next = 0
        self._shapes: dict[int, set[tuple[Any, ...]]] = {}  # by storage
        self._alive: list[Tensor] = []  # an address belongs to one tensor as long as all are kept

    def number(self, tensor: Tensor) -> int:
        """Of the value that it has now; autograd hands out copies that share their memory, so that counts."""
        key = self._key(tensor)
        if key not in self._numbers:
            self.constants[self._bind(tensor)] = tensor
        return self._numbers[key]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func._schema.name)
        if name == "aten::_local_scalar_dense":
            raise CannotCompile(_LOOKS)
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if draws and is_draw(func, args, kwargs):
            return self._drawn(func, args, kwargs)
        if not self._is_known(func):
            drawn = len(self.draws)
            with self:
                made = _taken_apart(func, args, kwargs)
            if draws and len(self.draws) > drawn:  # which may be others than those of the operation itself
                raise CannotCompile(_NOT_BEFORE.format(name.removeprefix("aten::")))
            if made is not NotImplemented:
                return made
        if draws:
            raise CannotCompile(_NOT_BEFORE.format(name.removeprefix("aten::")))
        arguments, options = tree_map_only(Tensor, lambda t: Ref(self.number(t)), (tuple(args), kwargs))
        if func._schema.is_mutable:
            self._overwrite(name, args[0])
        out = func(*args, **kwargs)
        if any(isinstance(leaf, bool | int | float) for leaf in tree_leaves(out)):  # as torch.equal
            raise CannotCompile(_LOOKS)
        made = {place: t for place, t in enumerate(tree_leaves(out)) if isinstance(t, Tensor)}
        outputs, results = tuple(map(self._bind, made.values())), tuple(made.values())
        self.calls.append(Call(func, arguments, options, outputs, results, tuple(made)))
        return out

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func._schema.is_mutable:
            self.number(args[0])
            self._overwrite(str(func._schema.name), args[0])
        out = func(*args, **kwargs)
        self.draws[self._bind(out)] = draw_of(func, args, kwargs, out)
        return out

    def _overwrite(self, name: str, tensor: Tensor) -> None:
        if not name.endswith("_") or len(self._shapes[_storage(tensor)]) > 1:
            raise NotWritten(f"{name.removeprefix('aten::')} changes a tensor that others share")
        self._numbers.pop(self._key(tensor))
        self.overwritten.add(_storage(tensor))

    def _bind(self, tensor: Tensor) -> int:
        key = self._key(tensor)
        self._shapes.setdefault(_storage(tensor), set()).add(key)
        self._alive.append(tensor)
        self._numbers[key] = self._next
        self._next += 1
        return self._numbers[key]

    @staticmethod
    def _key(tensor: Tensor) -> tuple[Any, ...]:
        if tensor.layout != torch.strided:
            raise NotWritten("a tensor is sparse")
        if not tensor.numel():
            return ("empty", id(tensor))
        return _storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _taken_apart(func: Any, args: Any, kwargs: Any) -> Any:
    """The same by other operations; NotImplemented where there are none."""
    made = func.decompose(*args, **kwargs)
    if made is NotImplemented:
        from torch._decomp import decomposition_table

        if (other := decomposition_table.get(func)) is not None:
            made = other(*args, **kwargs)
    return made
