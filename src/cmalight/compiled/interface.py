"""The C interface of kernel.cpp: its structures, field by field, and its enumerations."""

from __future__ import annotations

import ctypes
from enum import IntEnum


class CannotCompile(ValueError):
    """The model, the loss, the optimizer or the machine is not on the white list; the text says why in one line."""


class Kind(IntEnum):
    """Layers."""

    LINEAR = 0
    EMBEDDING = 1
    ACTIVATION = 2
    DROPOUT = 3
    BATCH_NORM = 4
    LAYER_NORM = 5


class Function(IntEnum):
    """Activations."""

    RELU = 0
    LEAKY_RELU = 1
    ELU = 2
    GELU = 3
    GELU_TANH = 4
    SILU = 5
    SIGMOID = 6
    TANH = 7
    SOFTPLUS = 8
    HARDTANH = 9


class LossKind(IntEnum):
    """Losses."""

    MSE = 0
    L1 = 1
    BCE = 2
    CROSS_ENTROPY = 3


class Method(IntEnum):
    """Steps of optimizers."""

    GRADIENT = 0
    SGD = 1
    ADAM = 2
    SOAP = 3
    ADAGRAD = 4
    ADADELTA = 5


_I64, _DOUBLE, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class Layer(ctypes.Structure):
    """`Layer` of kernel.cpp."""

    _fields_ = (
        *((name, _I64) for name in ("kind", "function", "rows", "inputs", "outputs", "weight", "bias", "flag")),
        *((name, _DOUBLE) for name in ("a", "b")),
        *((name, _POINTER) for name in ("mean", "variance", "tracked", "mask")),
    )


class Parameter(ctypes.Structure):
    """`Parameter` of kernel.cpp."""

    _fields_ = (
        ("value", _POINTER),
        ("state", _POINTER * 6),
        *((name, _I64) for name in ("count", "rows", "columns", "group", "fresh")),
        ("steps", _DOUBLE),
    )


class Group(ctypes.Structure):
    """`Group` of kernel.cpp."""

    _fields_ = (
        *((name, _DOUBLE) for name in ("lr", "weight_decay", "first", "second", "eps")),
        *((name, _I64) for name in ("flag", "refresh_interval")),
    )


class Job(ctypes.Structure):
    """`Job` of kernel.cpp."""

    _fields_ = (
        *((name, _I64) for name in ("is_double", "layers_count", "parameters_count", "method")),
        ("layers", ctypes.POINTER(Layer)),
        ("parameters", ctypes.POINTER(Parameter)),
        ("groups", ctypes.POINTER(Group)),
        *((name, _I64) for name in ("samples", "input_size", "target_size")),
        *((name, _POINTER) for name in ("inputs", "targets", "rows")),
        *((name, _I64) for name in ("rows_count", "batch_size", "first_step", "steps")),
        *((name, _POINTER) for name in ("factors", "losses", "counts", "outputs")),
        *((name, _I64) for name in ("loss", "ignored")),
        ("smoothing", _DOUBLE),
        *((name, _POINTER) for name in ("loss_weight", "positive_weight", "workspace")),
    )


STRUCTURES = (Layer, Parameter, Group, Job)


def layout() -> int:
    """The sizes of the structures in one number, as `cmalight_layout` of the kernel gives it."""
    total = 0
    for structure in reversed(STRUCTURES):
        total = 1000 * total + ctypes.sizeof(structure)
    return total
