"""Every optimizer of the package on one tiny regression, each trained by the loop that its contract shows."""

import io
import weakref

import pytest
import torch
from torch import nn

from cmalight import CMA, IG, SOAP, Auto, Certified, CMALight, Controlled, Objective
from cmalight.optim.epoch_optimizer import EpochOptimizer
from tests.optim.plain_loop import short_windows

MSE = nn.MSELoss()
SAMPLES, BATCH = 22, 4  # the last batch has 2 samples
TOTAL = 60

_OBJECTIVES = weakref.WeakKeyDictionary()


def batches(order=0, dtype=torch.float32):
    """The data in the `order`-th of its orders; each call gives the same tensors."""
    inputs = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    target = inputs.sum(1, keepdim=True).sin()
    index = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(order))
    return list(zip(inputs[index].split(BATCH), target[index].split(BATCH), strict=True))


def network(*, norm=False, dtype=torch.float32):
    """Always the same starting weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        middle = nn.BatchNorm1d(4) if norm else nn.Identity()
        return nn.Sequential(nn.Linear(3, 4), middle, nn.Tanh(), nn.Linear(4, 1)).to(dtype)


def objective_of(model):
    """One for the whole run."""
    if model not in _OBJECTIVES:
        _OBJECTIVES[model] = Objective(model, MSE, batches(dtype=next(model.parameters()).dtype))
    return _OBJECTIVES[model]


def _groups(model, params):
    return model.parameters() if params is None else params


def _controlled(base_class, *, settled, **defaults):
    def make(model, params=None, **options):
        base = base_class(_groups(model, params), **{**defaults, **options})
        objective = objective_of(model) if settled else None
        return short_windows(Controlled(base, model, objective=objective, total_steps=TOTAL))

    return make


def _certified(model, params=None, **options):
    base = torch.optim.Adam(_groups(model, params), **{"lr": 0.3, **options})
    return Certified(base, objective_of(model), total_steps=TOTAL)


def _auto(model, params=None, **options):
    given = model if params is None else params
    return short_windows(Auto(given, objective=objective_of(model), total_steps=TOTAL, **options))


def _plain(optimizer_class, **defaults):
    return lambda model, params=None, **options: optimizer_class(_groups(model, params), **{**defaults, **options})


PAPER = {
    "CMALight": _plain(CMALight, lr=0.8),
    "certified": _plain(CMALight, lr=0.8, line_search="certified"),
    "CMA": _plain(CMA, lr=0.8),
    "IG": _plain(IG, lr=0.2),
}
WATCHED = {  # windows of 4 steps end inside each epoch of 6 steps
    "Controlled-SGD": _controlled(torch.optim.SGD, settled=True, lr=0.5, momentum=0.9),
    "Controlled-Adam": _controlled(torch.optim.Adam, settled=False, lr=0.3),
    "Auto": _auto,
    "Certified": _certified,
}
ALL = {**PAPER, **WATCHED, "SOAP": _plain(SOAP)}

each = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
each_of_the_paper = pytest.mark.parametrize("make", PAPER.values(), ids=PAPER)
each_watched = pytest.mark.parametrize("make", WATCHED.values(), ids=WATCHED)
each_with_a_window = pytest.mark.parametrize("make", [*PAPER.values(), *WATCHED.values()], ids=[*PAPER, *WATCHED])

IMPLEMENTATIONS = {
    "default": {},
    "forloop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
each_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


def run_epoch(optimizer, model, data, *, step=None, after_step=None):
    """One pass; what the optimizer says of it, as text: it shows every digit, and NaN equals NaN in it."""
    if not isinstance(optimizer, EpochOptimizer):
        _steps(optimizer, model, data, None, step, after_step)
        return repr(getattr(optimizer, "report", None))
    with optimizer.epoch(objective_of(model)) as epoch:
        _steps(optimizer, model, data, epoch, step, after_step)
    return repr(epoch.report)


def _steps(optimizer, model, data, epoch, step, after_step):
    for x, y in data:
        optimizer.zero_grad()
        loss = MSE(model(x), y)
        loss.backward()
        if epoch is not None:
            epoch.observe(loss, len(y))
        if isinstance(optimizer, Controlled | Certified):
            (step or optimizer.step)(loss)
        else:
            (step or optimizer.step)()
        if after_step is not None:
            after_step()


def run_losses(optimizer, objective, losses, *, after_step=None):
    """An epoch of batches that are given by functions for their losses, and by their sizes."""
    with optimizer.epoch(objective) as epoch:
        for loss_of, count in losses:
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            epoch.observe(loss, count)
            optimizer.step()
            if after_step is not None:
                after_step()
    return epoch.report


def train(optimizer, model, epochs, **hooks):
    dtype = next(model.parameters()).dtype
    return [run_epoch(optimizer, model, batches(order, dtype), **hooks) for order in epochs]


def set_gradients(params, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def assert_same(left, right):
    """Bit for bit."""
    lefts, rights = list(left), list(right)
    assert lefts
    for a, b in zip(lefts, rights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def assert_same_models(left, right):
    """Parameters and buffers, bit for bit."""
    assert_same(left.state_dict().values(), right.state_dict().values())


def through_a_file(value):
    """Saved, and loaded as PyTorch loads what others have written."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
