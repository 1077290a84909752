"""The C interface of kernel.cpp: its structures, field by field, and its enumerations."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any


class CannotCompile(ValueError):
    """The model, the loss, the optimizer or the machine is not on the white list; the text says why in one line."""


Kind = IntEnum("Kind", "LINEAR EMBEDDING ACTIVATION DROPOUT BATCH_NORM LAYER_NORM", start=0)
Function = IntEnum("Function", "RELU LEAKY_RELU ELU GELU GELU_TANH SILU SIGMOID TANH SOFTPLUS HARDTANH", start=0)
LossKind = IntEnum("LossKind", "MSE L1 BCE CROSS_ENTROPY", start=0)
Method = IntEnum("Method", "GRADIENT SGD ADAM SOAP ADAGRAD ADADELTA", start=0)

_I64, _DOUBLE, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def _fields(*groups: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [(name, kind) for names, kind in groups for name in names.split()]


class Layer(ctypes.Structure):
    """`Layer` of kernel.cpp."""

    _fields_ = _fields(
        ("kind function rows inputs outputs weight bias flag", _I64),
        ("a b", _DOUBLE),
        ("mean variance tracked mask", _POINTER),
    )


class Parameter(ctypes.Structure):
    """`Parameter` of kernel.cpp."""

    _fields_ = _fields(
        ("value", _POINTER), ("state", _POINTER * 6), ("count rows columns group fresh", _I64), ("steps", _DOUBLE)
    )


class Group(ctypes.Structure):
    """`Group` of kernel.cpp."""

    _fields_ = _fields(("lr weight_decay first second eps", _DOUBLE), ("flag refresh_interval", _I64))


class Job(ctypes.Structure):
    """`Job` of kernel.cpp."""

    _fields_ = _fields(
        ("is_double layers_count parameters_count method", _I64),
        ("layers", ctypes.POINTER(Layer)),
        ("parameters", ctypes.POINTER(Parameter)),
        ("groups", ctypes.POINTER(Group)),
        ("samples input_size target_size", _I64),
        ("inputs targets rows", _POINTER),
        ("rows_count batch_size first_step steps", _I64),
        ("factors losses counts outputs", _POINTER),
        ("loss ignored", _I64),
        ("smoothing", _DOUBLE),
        ("loss_weight positive_weight workspace", _POINTER),
    )
