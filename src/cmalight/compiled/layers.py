"""The white list of layers and losses: from a model and a loss to what the kernel knows, by exact type and option."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from cmalight.compiled.interface import CannotCompile, Function, Job, Kind, Layer, LossKind

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
# What can follow directly in place: layers whose backward pass does not need their own output.
_OVERWRITABLE = (Kind.LINEAR, Kind.EMBEDDING, Kind.BATCH_NORM, Kind.LAYER_NORM)


@dataclass
class Stack:
    """The layers so far.

    Attributes:
        shape: Of one sample where the next layer begins.
        dtype: Of the inputs at first, then of the parameters.
        training: Stands for the training flag of every module; None takes each one's own.
        layers: In the order of the forward pass.
        buffers: Running mean, running variance and number of batches of each layer; none if it has none.
        parameters: Every parameter of the model.
        batch_norm: Whether a layer needs more than one row in every batch.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    training: bool | None = None
    layers: list[Layer] = field(default_factory=list)
    buffers: list[list[Tensor]] = field(default_factory=list)
    parameters: list[nn.Parameter] = field(default_factory=list)
    batch_norm: bool = False
    _seen: set[int] = field(default_factory=set)

    def trains(self, module: nn.Module) -> bool:
        """Whether a module is in training mode."""
        return module.training if self.training is None else self.training

    def expect(self, module: nn.Module, *shape: int) -> None:
        """Raise CannotCompile unless the last sizes of a sample are these."""
        if self.shape[-len(shape) :] != shape:
            kind = type(module).__name__
            raise CannotCompile(f"{kind} expects the last sizes {shape}, but samples have the shape {self.shape} there")

    def add(self, module: nn.Module, layer: Layer, shapes: dict[str, tuple[int, ...]]) -> None:
        """Append a layer with the parameters and buffers that its module has, whose shapes have to be these."""
        layer.weight = layer.bias = -1
        buffers = []
        for name, shape in shapes.items():
            tensor = getattr(module, name)
            if tensor is None:
                continue
            self._check(tensor, name, shape)
            if name in _RUNNING:
                buffers.append(tensor)
            else:
                setattr(layer, name, len(self.parameters))
                self.parameters.append(tensor)
        self.layers.append(layer)
        self.buffers.append(buffers)

    def _check(self, tensor: Tensor, name: str, shape: tuple[int, ...]) -> None:
        """Users may have replaced a tensor by another, and the kernel relies on its type and size."""
        if id(tensor) in self._seen:
            raise CannotCompile("two layers share a parameter or a buffer")
        self._seen.add(id(tensor))
        kind = Tensor if name in _RUNNING else nn.Parameter
        if type(tensor) is not kind or tuple(tensor.shape) != shape:
            found = f"{type(tensor).__name__} of the shape {tuple(tensor.shape)}"
            raise CannotCompile(f"{name} is a {found}; expected a {kind.__name__} of the shape {shape}")
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise CannotCompile("a parameter or a buffer is not a plain contiguous tensor on the CPU")
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise CannotCompile("a parameter has hooks")
        dtype = torch.int64 if name == "num_batches_tracked" else self.dtype
        if tensor.dtype != dtype:
            raise CannotCompile(f"the model mixes {tensor.dtype} with {dtype}")


def lower(model: nn.Module, inputs: Tensor, training: bool | None = None) -> Stack:
    """The layers of a model for these inputs; CannotCompile if a module is not on the white list."""
    if any(getattr(module_hooks, name) for name in _GLOBAL_HOOKS):
        raise CannotCompile("there are global module hooks")
    stack = Stack(tuple(inputs.shape[1:]), inputs.dtype, training)
    _lower(model, stack)
    if not stack.layers:
        raise CannotCompile("the model has no layers")
    if stack.dtype not in (torch.float32, torch.float64):
        raise CannotCompile(f"the model computes in {stack.dtype}; expected float32 or float64")
    return stack


def _refuse_changed(module: nn.Module) -> None:
    """Raise CannotCompile if a module of a known type has hooks, or a forward set on the instance."""
    if any(module.__dict__.get(name) for name in _HOOKS):
        raise CannotCompile(f"{type(module).__name__} has hooks")
    if "forward" in module.__dict__ or module.__dict__.get("_compiled_call_impl") is not None:
        raise CannotCompile(f"{type(module).__name__} has a forward of its own")


def _lower(module: nn.Module, stack: Stack) -> None:
    lowering = _LOWERINGS.get(type(module))
    if lowering is None:
        raise CannotCompile(f"{type(module).__name__} is not one of the layers that can be compiled")
    _refuse_changed(module)
    lowering(module, stack)


def _sequential(module: Any, stack: Stack) -> None:
    for child in module._modules.values():
        _lower(child, stack)


def _linear(module: nn.Linear, stack: Stack) -> None:
    inputs, outputs = module.in_features, module.out_features
    stack.expect(module, inputs)
    layer = Layer(kind=Kind.LINEAR, rows=math.prod(stack.shape[:-1]), inputs=inputs, outputs=outputs)
    stack.add(module, layer, {"weight": (outputs, inputs), "bias": (outputs,)})
    stack.shape = (*stack.shape[:-1], outputs)


def _embedding(module: nn.Embedding, stack: Stack) -> None:
    if stack.layers or stack.dtype != torch.int64:
        raise CannotCompile("an Embedding is compiled as the first layer only, on int64 inputs")
    if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
        raise CannotCompile("the Embedding has max_norm, scale_grad_by_freq or sparse")
    stack.dtype, width = module.weight.dtype, module.embedding_dim
    padding = -1 if module.padding_idx is None else module.padding_idx
    layer = Layer(kind=Kind.EMBEDDING, rows=math.prod(stack.shape), inputs=1, outputs=width, flag=padding)
    stack.add(module, layer, {"weight": (module.num_embeddings, width)})
    stack.shape = (*stack.shape, width)


def _flatten(module: nn.Flatten, stack: Stack) -> None:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise CannotCompile(f"{module} is not compiled; expected Flatten() without arguments")
    stack.shape = (math.prod(stack.shape),)


def _dropout(module: nn.Dropout, stack: Stack) -> None:
    _refuse_in_place(module, stack)
    if not stack.trains(module) or module.p == 0:
        return
    if module.p == 1:
        raise CannotCompile("Dropout drops everything")
    size, kept = math.prod(stack.shape), 1 - module.p
    stack.add(module, Layer(kind=Kind.DROPOUT, rows=1, inputs=size, outputs=size, a=1 / kept, b=kept), {})


def _batch_norm(module: nn.BatchNorm1d, stack: Stack) -> None:
    width, trains = module.num_features, stack.trains(module)
    stack.expect(module, width)
    if len(stack.shape) != 1:
        raise CannotCompile("BatchNorm1d is compiled for samples of one dimension only")
    has_running = {getattr(module, name) is not None for name in _RUNNING}
    if len(has_running) > 1 or (trains and has_running != {module.track_running_stats}):
        raise CannotCompile("BatchNorm1d has running statistics that do not go with track_running_stats")
    by_batch = trains or has_running == {False}
    stack.batch_norm |= by_batch
    momentum = -1.0 if module.momentum is None else module.momentum
    layer = Layer(kind=Kind.BATCH_NORM, rows=1, inputs=width, outputs=width, flag=by_batch, a=module.eps, b=momentum)
    names = ("weight", "bias", "running_mean", "running_var")
    stack.add(module, layer, {**dict.fromkeys(names, (width,)), "num_batches_tracked": ()})


def _layer_norm(module: nn.LayerNorm, stack: Stack) -> None:
    stack.expect(module, *module.normalized_shape)
    width = math.prod(module.normalized_shape)
    rows = math.prod(stack.shape) // width
    layer = Layer(kind=Kind.LAYER_NORM, rows=rows, inputs=width, outputs=width, a=module.eps)
    stack.add(module, layer, dict.fromkeys(("weight", "bias"), tuple(module.normalized_shape)))


def _activation(module: nn.Module, stack: Stack) -> None:
    _refuse_in_place(module, stack)
    function, *options = _FUNCTIONS[type(module)]
    if isinstance(module, nn.GELU) and module.approximate == "tanh":
        function = Function.GELU_TANH
    size = math.prod(stack.shape)
    values = dict(zip("ab", (getattr(module, name) for name in options), strict=False))
    stack.add(module, Layer(kind=Kind.ACTIVATION, function=function, rows=1, inputs=size, outputs=size, **values), {})


def _refuse_in_place(module: Any, stack: Stack) -> None:
    """In place is refused if torch would change the data, or refuse it, too."""
    if getattr(module, "inplace", False) and not (stack.layers and stack.layers[-1].kind in _OVERWRITABLE):
        raise CannotCompile(f"{type(module).__name__} works in place on something else than a layer's output")


# The function of an activation, and the attributes that are its options a and b.
_FUNCTIONS: dict[type[nn.Module], tuple[Any, ...]] = {
    nn.ReLU: (Function.RELU,),
    nn.LeakyReLU: (Function.LEAKY_RELU, "negative_slope"),
    nn.ELU: (Function.ELU, "alpha"),
    nn.GELU: (Function.GELU,),
    nn.SiLU: (Function.SILU,),
    nn.Sigmoid: (Function.SIGMOID,),
    nn.Tanh: (Function.TANH,),
    nn.Softplus: (Function.SOFTPLUS, "beta", "threshold"),
    nn.Hardtanh: (Function.HARDTANH, "min_val", "max_val"),
    nn.ReLU6: (Function.HARDTANH, "min_val", "max_val"),
}
_LOWERINGS: dict[type[nn.Module], Callable[[Any, Stack], None]] = {
    nn.Sequential: _sequential,
    nn.Identity: lambda *_: None,
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.Flatten: _flatten,
    nn.Dropout: _dropout,
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    **dict.fromkeys(_FUNCTIONS, _activation),
}
_LOSSES: dict[type[nn.Module], LossKind] = {
    nn.MSELoss: LossKind.MSE,
    nn.L1Loss: LossKind.L1,
    nn.BCEWithLogitsLoss: LossKind.BCE,
    nn.CrossEntropyLoss: LossKind.CROSS_ENTROPY,
}


def lower_loss(loss_fn: Any, stack: Stack, targets: Tensor, job: Job) -> list[Tensor]:
    """Put the loss of a stack's outputs into the job; CannotCompile if it is not on the white list.

    The weights whose addresses are then in the job are returned: they have to live as long as it.
    """
    name, shape = type(loss_fn).__name__, stack.shape
    kind = _LOSSES.get(type(loss_fn))
    if kind is None:
        raise CannotCompile(f"the loss {name} is not one of {', '.join(one.__name__ for one in _LOSSES)}")
    _refuse_changed(loss_fn)
    if loss_fn.reduction != "mean":
        raise CannotCompile(f"{name} has reduction={loss_fn.reduction!r}; expected 'mean'")
    job.loss, job.target_size = kind, math.prod(shape)
    if kind is LossKind.CROSS_ENTROPY:
        if len(shape) != 1 or targets.dim() != 1 or targets.dtype != torch.int64:
            raise CannotCompile("CrossEntropyLoss is compiled for one row of logits and one int64 label per sample")
        job.ignored, job.smoothing = loss_fn.ignore_index, loss_fn.label_smoothing
    elif targets.dtype != stack.dtype or tuple(targets.shape[1:]) != shape:
        given, wanted = (targets.dtype, tuple(targets.shape[1:])), (stack.dtype, shape)
        raise CannotCompile(f"targets {given} do not match the model's outputs {wanted}")
    kept = []
    for place, option in (("loss_weight", "weight"), ("positive_weight", "pos_weight")):
        weight = getattr(loss_fn, option, None)
        if weight is not None:
            kept.append(_expanded(weight, stack))
            setattr(job, place, kept[-1].data_ptr())
    return kept


def _expanded(weight: Tensor, stack: Stack) -> Tensor:
    """One weight per number of a sample."""
    if type(weight) is not Tensor or weight.dtype != stack.dtype or weight.device.type != "cpu" or weight.requires_grad:
        raise CannotCompile(f"a weight of the loss is not a plain {stack.dtype} tensor on the CPU")
    if tuple(weight.shape) not in ((), stack.shape):
        raise CannotCompile(f"a weight of the loss has the shape {tuple(weight.shape)}, samples have {stack.shape}")
    return weight.expand(stack.shape).contiguous()
