"""The text of a run's native functions, built into a library, and the way to call them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cmalight.compiled.blocks import Progress, Watch
from cmalight.compiled.layout import Layout
from cmalight.compiled.native import library
from cmalight.compiled.native.operations import write
from cmalight.compiled.native.source import EVALUATION, PRELUDE, STEPS
from cmalight.compiled.native.writing import TYPES, Kept, Writer, kept
from cmalight.compiled.recorded.draws import Drawn
from cmalight.compiled.recorded.passes import RecordedPass, RecordedPasses
from cmalight.compiled.recorded.recording import Recording

_MOST_STARTS = 1024
_ALIGNED = 64


class Program:
    """One text with the steps of both sizes of batches and the evaluation, so that one build makes all.

    Args:
        passes: what a step and an evaluation do.
        layout: of the parameters in the flat vector.
        data: inputs and targets.
        sizes: of the batches: the full ones, and that of a short last one.

    Raises:
        NotWritten: the model does something that is not known here.
    """

    def __init__(self, passes: RecordedPasses, layout: Layout, data: Sequence[Tensor], sizes: Sequence[int]) -> None:
        self._layout, self._evaluates = layout, passes.evaluation is not None
        self.constants: list[Tensor] = []
        functions: dict[str, str] = {}
        targets_at = _aligned(max(sizes) * _bytes(data[0][0]))
        offset = _aligned(targets_at + max(sizes) * _bytes(data[1][0]))
        written = [self._step(part, passes, functions, targets_at, offset) for part in range(len(sizes))]
        around = [STEPS if len(sizes) > 1 else STEPS.replace("(part ? step_1 : step_0)", "step_0")]
        if passes.evaluation is not None:
            written.append(self._evaluation(passes.evaluation, passes.numbers.evaluation, functions))
            around.append(EVALUATION)
        end = max(used for _, used in written)
        carried = [*passes.steps[0].inputs[4:], *passes.steps[0].buffers.values()]
        chunk, drawn = passes.chunk, passes.numbers.evaluation
        self.workspace = torch.empty(end + _ALIGNED, dtype=torch.uint8)
        kind = TYPES[layout.dtype]
        lines = [f"static __attribute__((noinline)) void {name}{body}" for body, name in functions.items()]
        names = {
            "PARTS": len(sizes),
            "STATES": len(carried),
            "OPTIMIZERS_STATES": len(passes.steps[0].inputs) - 4,
            "GROUPS": len(layout.groups),
            "INPUT_BYTES": _bytes(data[0][0]),
            "TARGET_BYTES": _bytes(data[1][0]),
            "TARGETS_AT": targets_at,
            "INPUT_CHUNK": chunk * _bytes(data[0][0]),
            "TARGET_CHUNK": chunk * _bytes(data[1][0]),
            "MOST_STARTS": _MOST_STARTS,
            "DRAWN": _bytes(passes.numbers.steps[0].rows[0]) if passes.numbers.steps else 0,
            "DRAWN_CHUNK": _bytes(drawn.rows[0]) if drawn else 0,
        }
        weights = layout.groups[-1][1] * layout.params[0].element_size()
        tables = (
            f"using Number = {kind};\n"
            f"static const long SIZES[] = {{{', '.join(map(str, sizes))}}};\n"
            f"static const long BYTES[] = {{{', '.join(map(str, [weights, *map(_bytes, carried)]))}}};\n"
            + "".join(f"static const long {name} = {number};\n" for name, number in names.items())
        )
        self.text = "\n".join([PRELUDE, *lines, *(text for text, _ in written), tables, *around])

    def _step(
        self, part: int, passes: RecordedPasses, functions: dict[str, str], targets_at: int, offset: int
    ) -> tuple[str, int]:
        step = passes.steps[part]
        recording, inputs = step.recording, step.inputs
        numbers, changes = recording.inputs, list(recording.changes.values())
        given = self._given(step, "xywr")
        carried = [*inputs[4:], *step.buffers.values()]
        befores = [*numbers[4 : len(inputs)], *(before for before, _ in changes)]
        for place, (number, t) in enumerate(zip(befores, carried, strict=True)):
            given[number] = kept(f"s{place}", _form(t))
        if passes.numbers.steps:
            given.update(_drawn_values(recording, passes.numbers.steps[part]))
        single = torch.empty((), dtype=torch.float64, device="meta")
        places = [kept("value", single), kept("added", single), kept("n", _form(inputs[2]))]
        places += [kept(f"t{place}", _form(t)) for place, t in enumerate(carried)]
        writer = Writer()
        outputs = [*recording.outputs, *(after for _, after in changes)]
        write(recording, given, list(zip(outputs, places, strict=True)), writer)
        names = ["char* const w = now[0], *const n = next[0], *const x = work, *const y = work + " + str(targets_at)]
        names += [f"char* const s{k} = now[{k + 1}], *const t{k} = next[{k + 1}]" for k in range(len(carried))]
        return self._function(
            f"step_{part}",
            writer,
            functions,
            "char** now, char** next, const double* r, char** constants, char* d, double* value, double* added",
            names,
            offset,
        )

    def _evaluation(self, evaluation: RecordedPass, drawn: Drawn | None, functions: dict[str, str]) -> tuple[str, int]:
        recording = evaluation.recording
        given = self._given(evaluation, "xy")
        if drawn is not None:
            given.update(_drawn_values(recording, drawn))
        writer = Writer()
        place = kept("value", torch.empty((), dtype=torch.float64, device="meta"))
        write(recording, given, [(recording.outputs[0], place)], writer)
        parameters = "char* w, const char* x, const char* y, char** constants, char* d, double* value"
        return self._function("evaluate_chunk", writer, functions, parameters, [], 0)

    def _given(self, one: RecordedPass, names: str) -> dict[int, Kept]:
        """Where its first inputs are, its parameters and its constants."""
        numbers, inputs = one.recording.inputs, one.inputs
        given = {number: kept(base, _form(t)) for number, base, t in zip(numbers, names, inputs, strict=False)}
        flat = torch.empty(self._layout.groups[-1][1], dtype=self._layout.dtype, device="meta")
        for number, form in zip(numbers[len(inputs) :], self._layout.parts(flat), strict=True):
            given[number] = kept("w", form)
        given.update(self._constants(one.recording))
        return given

    @staticmethod
    def _function(
        name: str, writer: Writer, functions: dict[str, str], parameters: str, names: list[str], offset: int
    ) -> tuple[str, int]:
        text, end = writer.text(
            name, functions, parameters=f"const Library& library, char* const work, {parameters}", offset=offset
        )
        head, _, rest = text.partition("{\n")
        return head + "{\n" + "".join(f"  {line};\n" for line in names) + rest, end

    def _constants(self, recording: Recording) -> dict[int, Kept]:
        """As they are in memory at each call: a buffer may change between two."""
        found = {}
        for number, tensor in recording.constants.items():
            place = next((k for k, one in enumerate(self.constants) if one is tensor), len(self.constants))
            if place == len(self.constants):
                self.constants.append(tensor)
            form = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            found[number] = kept(f"constants[{place}]", form)
        return found

    @property
    def is_ready(self) -> bool:
        """Whether it was built before."""
        return library.is_ready(self.text)

    def build(self) -> None:
        """The library; CannotCompile where that fails."""
        built = library.library(self.text)
        self._run = built.run
        self._run.restype = None
        if self._evaluates:
            self._evaluate = built.evaluate
            self._evaluate.restype = None

    def block(
        self,
        begun: Progress,
        watch: Watch,
        inputs: Tensor,
        targets: Tensor,
        rows: tuple[Tensor, ...],
        stop: Tensor,
        lr: tuple[Tensor, ...],
        drawn: tuple[Tensor, ...] = (),
    ) -> tuple[Progress, Tensor]:
        """What the function of `make_block` does, for one start or several."""
        done = Progress(
            batch=begun.batch.clone(),
            going=begun.going.clone(),
            total=begun.total.clone(),
            lowest=begun.lowest.clone(),
            weights=begun.weights.clone(),
            state=tuple(t.clone() for t in begun.state),
            first=torch.full_like(begun.total, torch.nan),
        )
        spare = torch.empty_like(done.weights)
        spares = [torch.empty_like(t) for t in done.state]
        moved = torch.empty_like(done.total)
        starts = done.total.numel()
        if starts > _MOST_STARTS:
            raise ValueError(f"{starts} starts at once, and at most {_MOST_STARTS} are possible")
        sizes = [ctypes.c_long(len(part)) for part in rows] + [ctypes.c_long(0)]
        count = ctypes.c_long(starts)
        tables = [_table(done.state), _table(spares), _table(self.constants)]
        empty = (0,) * (2 - len(rows))
        slots = (
            _pointer(done.weights),
            _pointer(spare),
            *(ctypes.addressof(table) for table in tables),
            _at(self.workspace),
            _pointer(inputs),
            _pointer(targets),
            *(_pointer(part) for part in rows),
            *empty,
            *(_pointer(part) for part in lr),
            *empty,
            _pointer(watch.checks),
            _pointer(watch.bound),
            _pointer(watch.samples),
            _pointer(watch.active),
            _pointer(watch.start),
            ctypes.addressof(count),
            _pointer(stop),
            *_products(),
            _pointer(done.batch),
            _pointer(done.going),
            _pointer(done.total),
            _pointer(done.lowest),
            _pointer(moved),
            *(ctypes.addressof(size) for size in sizes[:2]),
            *(_pointer(rows) for rows in drawn),
            *((0,) * (2 - len(drawn))),
            0 if done.first is None else _pointer(done.first),
        )
        _call(self._run, slots)
        return done, moved

    def evaluation(
        self,
        weights: Tensor,
        inputs: Tensor,
        targets: Tensor,
        first: Tensor,
        stop: Tensor,
        total: Tensor,
        drawn: tuple[Tensor, ...] = (),
    ) -> tuple[Tensor, Tensor]:
        """What the function of `make_evaluation` does."""
        total = total.clone()
        table = _table(self.constants)
        slots = (
            _pointer(weights),
            _at(self.workspace),
            _pointer(inputs),
            _pointer(targets),
            _pointer(first),
            _pointer(stop),
            _pointer(total),
            *_products(),
            ctypes.addressof(table),
            _pointer(drawn[0]) if drawn else 0,
        )
        _call(self._evaluate, slots)
        return stop, total


def _call(function: Any, slots: Sequence[int]) -> None:
    outside = ctypes.c_bool(False)
    function((ctypes.c_void_p * (len(slots) + 1))(*slots, ctypes.addressof(outside)))
    if outside.value:
        raise IndexError("an index is out of range: that of a row of an embedding, or of a class")


def _drawn_values(recording: Recording, drawn: Drawn) -> dict[int, Kept]:
    forms = drawn.places(torch.empty_like(drawn.rows[0], device="meta"))
    return {number: kept("d", form) for number, form in zip(recording.draws, forms, strict=True)}


def _pointer(tensor: Tensor) -> int:
    if not tensor.is_contiguous():
        raise ValueError("an array for a compiled step lies in memory with gaps")
    return tensor.data_ptr()


def _at(workspace: Tensor) -> int:
    return -(-workspace.data_ptr() // _ALIGNED) * _ALIGNED


def _table(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(t.data_ptr() for t in tensors))


def _form(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


@functools.cache
def _products() -> tuple[int, int]:
    """Addresses of the matrix products that torch itself uses; 0 where it hides them."""
    found = []
    for folder in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            own = ctypes.CDLL(str(folder))
            found = [ctypes.cast(getattr(own, name), ctypes.c_void_p).value or 0 for name in ("sgemm_", "dgemm_")]
        except (OSError, AttributeError):
            continue
    return (found[0], found[1]) if len(found) == 2 else (0, 0)
