"""The white list of layers: from a model to a list of layers, by exact type and option."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from cmalight.compiled.interface import CannotCompile, Function, Kind

DTYPES = (torch.float32, torch.float64)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)
# What can follow directly in place: layers whose backward pass does not need their own output.
_OVERWRITABLE = (Kind.LINEAR, Kind.EMBEDDING, Kind.BATCH_NORM, Kind.LAYER_NORM)


@dataclass(frozen=True)
class LayerSpec:
    """One layer of the kernel; see `Layer` in kernel.cpp.

    Attributes:
        kind: What it does.
        rows: Lines per sample.
        inputs: Numbers per line that come in.
        outputs: Numbers per line that go out.
        weight: Its weight, if it has one.
        bias: Its bias, if it has one.
        function: Of an activation.
        flag: Whether a batch norm normalises by the batch; the padding index of an embedding.
        a: First option of a function; scale of a dropout; eps of a norm.
        b: Second option of a function; momentum of a batch norm.
        buffers: Running mean, running variance and number of batches of a batch norm that updates or uses them.
        keeps: Probability with which a dropout keeps a number.
    """

    kind: Kind
    rows: int
    inputs: int
    outputs: int
    weight: Tensor | None = None
    bias: Tensor | None = None
    function: Function = Function.RELU
    flag: int = 0
    a: float = 0.0
    b: float = 0.0
    buffers: tuple[Tensor, ...] = ()
    keeps: float = 1.0


@dataclass
class Stack:
    """The layers so far.

    Attributes:
        shape: Of one sample where the next layer begins.
        dtype: Of the inputs at first, then of the parameters.
        layers: In the order of the forward pass.
        parameters: Every parameter of the model.
        batch_norm: Whether a layer needs more than one row in every batch.
        training: Stands for the training flag of every module; None takes each one's own.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    training: bool | None = None
    layers: list[LayerSpec] = field(default_factory=list)
    parameters: list[nn.Parameter] = field(default_factory=list)
    batch_norm: bool = False
    _seen: set[int] = field(default_factory=set)

    def trains(self, module: nn.Module) -> bool:
        """Whether a module is in training mode."""
        return module.training if self.training is None else self.training

    def add(self, spec: LayerSpec) -> None:
        """Append a layer."""
        for parameter in (spec.weight, spec.bias):
            if parameter is not None:
                self._check(parameter, nn.Parameter, self.dtype)
                self.parameters.append(parameter)  # type: ignore[arg-type]
        for buffer, dtype in zip(spec.buffers, (self.dtype, self.dtype, torch.int64), strict=False):
            self._check(buffer, Tensor, dtype)
        self.layers.append(spec)

    def _check(self, tensor: Tensor, kind: type[Tensor], dtype: torch.dtype) -> None:
        if id(tensor) in self._seen:
            raise CannotCompile("two layers share a parameter or a buffer")
        self._seen.add(id(tensor))
        if type(tensor) is not kind:
            raise CannotCompile(f"a layer has a {type(tensor).__name__} in the place of a {kind.__name__}")
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise CannotCompile("a parameter or a buffer is not a plain contiguous tensor on the CPU")
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise CannotCompile("a parameter has hooks")
        if tensor.dtype != dtype:
            raise CannotCompile(f"the model mixes {tensor.dtype} with {dtype}")
        if tensor.numel() == 0:
            raise CannotCompile("a parameter has no elements")


def lower(model: nn.Module, inputs: Tensor, training: bool | None = None) -> Stack:
    """The layers of a model.

    Args:
        model: Whose forward pass is to be compiled.
        inputs: The inputs of all samples.
        training: See `Stack`.

    Returns:
        Its layers and parameters.

    Raises:
        CannotCompile: A module is not on the white list.
    """
    if any(getattr(module_hooks, name) for name in _GLOBAL_HOOKS):
        raise CannotCompile("there are global module hooks")
    stack = Stack(tuple(inputs.shape[1:]), inputs.dtype, training)
    _lower(model, stack)
    if not stack.layers:
        raise CannotCompile("the model has no layers")
    if inputs.dtype not in DTYPES and stack.layers[0].kind is not Kind.EMBEDDING:
        raise CannotCompile(f"the inputs are {inputs.dtype}; expected float32 or float64")
    return stack


def _lower(module: nn.Module, stack: Stack) -> None:
    kind = type(module)
    lowering = _LOWERINGS.get(kind)
    if lowering is None:
        raise CannotCompile(f"{kind.__name__} is not one of the layers that can be compiled")
    if any(module.__dict__.get(name) for name in _HOOKS):
        raise CannotCompile(f"{kind.__name__} has hooks")
    if "forward" in module.__dict__ or module.__dict__.get("_compiled_call_impl") is not None:
        raise CannotCompile(f"{kind.__name__} has a forward of its own")
    lowering(module, stack)


def _sequential(module: Any, stack: Stack) -> None:
    for child in module._modules.values():
        _lower(child, stack)


def _nothing(module: Any, stack: Stack) -> None:
    pass


def _linear(module: nn.Linear, stack: Stack) -> None:
    _expect(stack, module.in_features)
    rows = math.prod(stack.shape[:-1])
    spec = LayerSpec(Kind.LINEAR, rows, module.in_features, module.out_features, module.weight, module.bias)
    _expect_shapes(module, {"weight": (module.out_features, module.in_features), "bias": (module.out_features,)})
    stack.add(spec)
    stack.shape = (*stack.shape[:-1], module.out_features)


def _embedding(module: nn.Embedding, stack: Stack) -> None:
    if stack.layers or stack.dtype != torch.int64:
        raise CannotCompile("an Embedding is compiled as the first layer only, on int64 inputs")
    if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
        raise CannotCompile("the Embedding has max_norm, scale_grad_by_freq or sparse")
    stack.dtype = module.weight.dtype
    if stack.dtype not in DTYPES:
        raise CannotCompile(f"the Embedding is {stack.dtype}; expected float32 or float64")
    padding = -1 if module.padding_idx is None else module.padding_idx
    rows, width = math.prod(stack.shape), module.embedding_dim
    _expect_shapes(module, {"weight": (module.num_embeddings, width)})
    stack.add(LayerSpec(Kind.EMBEDDING, rows, 1, width, module.weight, flag=padding))
    stack.shape = (*stack.shape, width)


def _flatten(module: nn.Flatten, stack: Stack) -> None:
    dimensions = len(stack.shape) + 1
    start, end = (d + dimensions if d < 0 else d for d in (module.start_dim, module.end_dim))
    if not 1 <= start <= end < dimensions:
        raise CannotCompile(
            f"Flatten({module.start_dim}, {module.end_dim}) does not fit samples of shape {stack.shape}"
        )
    stack.shape = (*stack.shape[: start - 1], math.prod(stack.shape[start - 1 : end]), *stack.shape[end:])


def _dropout(module: nn.Dropout, stack: Stack) -> None:
    _check_in_place(module, stack)
    if not stack.trains(module) or module.p == 0:
        return
    if module.p == 1:
        raise CannotCompile("Dropout drops everything")
    size, keeps = math.prod(stack.shape), 1 - module.p
    stack.add(LayerSpec(Kind.DROPOUT, 1, size, size, a=1 / keeps, keeps=keeps))


def _batch_norm(module: nn.BatchNorm1d, stack: Stack) -> None:
    _expect(stack, module.num_features)
    if len(stack.shape) != 1:
        raise CannotCompile("BatchNorm1d is compiled for samples of one dimension only")
    running: tuple[Any, ...] = (module.running_mean, module.running_var, module.num_batches_tracked)
    has_running = all(one is not None for one in running)
    if not has_running and any(one is not None for one in running):
        raise CannotCompile("BatchNorm1d has only some of its running statistics")
    if stack.trains(module) and module.track_running_stats != has_running:
        raise CannotCompile("BatchNorm1d has running statistics that do not go with track_running_stats")
    by_batch = stack.trains(module) or not has_running
    stack.batch_norm |= by_batch
    width, momentum = module.num_features, -1.0 if module.momentum is None else float(module.momentum)
    names = ("weight", "bias", "running_mean", "running_var")
    _expect_shapes(module, {**dict.fromkeys(names, (width,)), "num_batches_tracked": ()})
    buffers = running if has_running else ()
    parameters = module.weight, module.bias
    stack.add(
        LayerSpec(
            Kind.BATCH_NORM, 1, width, width, *parameters, flag=by_batch, a=module.eps, b=momentum, buffers=buffers
        )
    )


def _layer_norm(module: nn.LayerNorm, stack: Stack) -> None:
    normalized = tuple(module.normalized_shape)
    if stack.shape[-len(normalized) :] != normalized:
        raise CannotCompile(f"LayerNorm normalises {normalized}, but samples have the shape {stack.shape}")
    width = math.prod(normalized)
    rows = math.prod(stack.shape) // width
    _expect_shapes(module, dict.fromkeys(("weight", "bias"), normalized))
    parameters = module.weight, module.bias
    stack.add(LayerSpec(Kind.LAYER_NORM, rows, width, width, *parameters, a=module.eps))


def _activation(function: Function, *options: str) -> Callable[[Any, Stack], None]:
    """An activation whose options a and b are attributes of the module."""

    def lowering(module: Any, stack: Stack) -> None:
        _check_in_place(module, stack)
        chosen, size = function, math.prod(stack.shape)
        if type(module) is nn.GELU and module.approximate == "tanh":
            chosen = Function.GELU_TANH
        a, b, *_ = [float(getattr(module, name)) for name in options] + [0.0, 0.0]
        stack.add(LayerSpec(Kind.ACTIVATION, 1, size, size, function=chosen, a=a, b=b))

    return lowering


def _check_in_place(module: Any, stack: Stack) -> None:
    """In place is refused where torch would change the data, or refuse it, too."""
    if getattr(module, "inplace", False) and not (stack.layers and stack.layers[-1].kind in _OVERWRITABLE):
        raise CannotCompile(f"{type(module).__name__} works in place on something else than a layer's output")


def _expect(stack: Stack, features: int) -> None:
    if not stack.shape or stack.shape[-1] != features:
        raise CannotCompile(f"a layer expects {features} features, but samples have the shape {stack.shape} there")


def _expect_shapes(module: nn.Module, shapes: dict[str, tuple[int, ...]]) -> None:
    """Parameters may have been replaced by others; the kernel relies on their sizes."""
    for name, shape in shapes.items():
        tensor = getattr(module, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise CannotCompile(f"{name} of {type(module).__name__} has the shape {tuple(tensor.shape)}, not {shape}")


_LOWERINGS: dict[type[nn.Module], Callable[[Any, Stack], None]] = {
    nn.Sequential: _sequential,
    nn.Identity: _nothing,
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.Flatten: _flatten,
    nn.Dropout: _dropout,
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.ReLU: _activation(Function.RELU),
    nn.LeakyReLU: _activation(Function.LEAKY_RELU, "negative_slope"),
    nn.ELU: _activation(Function.ELU, "alpha"),
    nn.GELU: _activation(Function.GELU),
    nn.SiLU: _activation(Function.SILU),
    nn.Sigmoid: _activation(Function.SIGMOID),
    nn.Tanh: _activation(Function.TANH),
    nn.Softplus: _activation(Function.SOFTPLUS, "beta", "threshold"),
    nn.Hardtanh: _activation(Function.HARDTANH, "min_val", "max_val"),
    nn.ReLU6: _activation(Function.HARDTANH, "min_val", "max_val"),
}
