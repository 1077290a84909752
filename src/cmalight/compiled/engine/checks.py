"""What must hold for compiled epochs to give what eager ones would; each test has its reason in words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_hooks

from cmalight.compiled.blocks import Loss, first_line
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.native.library import compiler
from cmalight.compiled.steps import step_rule
from cmalight.compiled.trust.trials import trial
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.counting import counts_are_lengths
from cmalight.evaluation.randomness import sources
from cmalight.evaluation.shapes import refuse_broadcast

_FOR_ALL_MODULES = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


def check(model: nn.Module, loss_fn: Loss, optimizer: Optimizer, feed: Any) -> TensorBatches:
    """Raises CannotCompile with the first reason there is; gives the feed, which is then known to be in memory."""
    data = check_without_running(model, loss_fn, optimizer, feed)
    compiler()
    layout = Layout.of(model, optimizer)
    _check_one_step(model, loss_fn, layout, *(t[: data.batch_size].clone() for t in data.tensors), loader=data)
    return data


def check_without_running(model: nn.Module, loss_fn: Loss, optimizer: Optimizer, feed: Any) -> TensorBatches:
    """The reasons that can be seen without calling the model."""
    data = _in_memory(feed)
    if not counts_are_lengths(loss_fn, feed):
        raise CannotCompile("class weights or ignored targets make batches of one size count differently")
    layout = Layout.of(model, optimizer)
    step_rule(optimizer)
    _check_hooks(model, optimizer, layout)
    if torch.is_autocast_enabled("cpu"):
        raise CannotCompile("autocast is on")
    if type(model).__name__ == "OptimizedModule" or isinstance(model, torch.jit.ScriptModule):
        raise CannotCompile("the model is compiled already")
    return data


def check_unchanged(model: nn.Module, optimizer: Optimizer, layout: Layout) -> None:
    """Before every epoch: what a callback may have changed, and torch would not notice."""
    if not layout.is_that_of(model, optimizer):
        raise CannotCompile("the parameters of the model or the optimizer are not those it began with")
    _check_hooks(model, optimizer, layout)


def _in_memory(feed: Any) -> TensorBatches:
    if type(feed) is not TensorBatches or len(feed.tensors) != 2:
        raise CannotCompile(f"the data is a {type(feed).__name__}: pass a pair of tensors, or TensorBatches")
    if any(t.device.type != "cpu" for t in feed.tensors):
        raise CannotCompile("the data is not in the CPU's memory")
    return feed


def _check_hooks(model: nn.Module, optimizer: Optimizer, layout: Layout) -> None:
    for name in _FOR_ALL_MODULES:
        if getattr(module_hooks, name, None):
            raise CannotCompile("there is a hook on all modules, which would not run")
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        if getattr(optimizer_hooks, name, None):
            raise CannotCompile("there is a hook on all optimizers, which would not run")
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            raise CannotCompile(f"{type(module).__name__} has a hook, which would not run")
    for name, p in zip(layout.names, layout.params, strict=True):
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise CannotCompile(f"the parameter {name} has a hook, which would not run")
    for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        if getattr(optimizer, name, None):
            raise CannotCompile("the optimizer has a hook, which would not run")
    if "step" in vars(optimizer):
        raise CannotCompile("the optimizer's step() was replaced, as learning rate schedulers do")


def _check_one_step(
    model: nn.Module, loss_fn: Loss, layout: Layout, inputs: Tensor, target: Tensor, *, loader: object
) -> None:
    """Looks at what a step does beside its gradient: other random numbers than torch's, new buffers, ..."""
    with trial(model, loss_fn, loader), torch.enable_grad():
        before = dict(model.named_buffers())
        drawn = [(one, one.get()) for one in sources(model, loader, loss_fn) if one.name != "torch"]
        try:
            output = model(inputs)
            refuse_broadcast(output, target, loss_fn)
            loss = loss_fn(output, target)
            gradients = torch.autograd.grad(loss, list(layout.params), allow_unused=True)
        except (RuntimeError, TypeError) as error:
            raise CannotCompile(f"a trial step failed: {first_line(error)}") from error
        if any(not _same(source.get(), state) for source, state in drawn):
            raise CannotCompile("the model draws random numbers from another generator than torch's own")
        for name, buffer in model.named_buffers():
            if before.get(name) is not buffer:
                raise CannotCompile(f"the forward pass puts another tensor in the place of the buffer {name}")
    for name, gradient in zip(layout.names, gradients, strict=True):
        if gradient is None or gradient.is_sparse:
            raise CannotCompile(f"the parameter {name} gets {'no' if gradient is None else 'a sparse'} gradient")


def _same(left: Any, right: Any) -> bool:
    return torch.equal(left, right) if isinstance(left, Tensor) else bool(left == right)
