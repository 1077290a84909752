"""The loop of the README on small problems, for tests of `Controlled`."""

import torch
from torch import nn

from cmalight import Certified, Controlled, Objective, TensorBatches
from cmalight.rules.watchdog import Watchdog

MSE = nn.MSELoss()


def data(samples=256, batch_size=16, *, dtype=torch.float32, order="reshuffle"):
    x = torch.randn(samples, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    return TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=batch_size, order=order)


def network(*, norm=False, dtype=torch.float32):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(6, 8), middle, nn.Tanh(), nn.Linear(8, 1)).to(dtype)


def adam(model, **options):
    return torch.optim.Adam(model.parameters(), **{"lr": 1e-2, **options})


def short_windows(optimizer, length=4):
    """All windows have this many steps."""
    optimizer._watch.rule = Watchdog(memory=2 * length, longest=length)
    optimizer._watch.memory = optimizer._watch.rule.init()
    return optimizer


def controlled(model, batches=None, *, base=None, loss_fn=MSE, length=4, **options):
    """Windows of a few steps; with `batches`, f settles alarms."""
    objective = None if batches is None else Objective(model, loss_fn, batches)
    optimizer = Controlled(adam(model) if base is None else base, model, objective=objective, **options)
    return short_windows(optimizer, length)


def watched(*, norm=False, **options):
    """A network, and Adam under the watchdog."""
    model = network(norm=norm)
    return model, controlled(model, **options)


def take_steps(optimizer, model, batches, count, *, loss_fn=MSE, spoil=None, before_step=None):
    """`count` steps over the batches, again and again; `spoil` names steps whose targets are garbage."""
    done = 0
    while done < count:
        for x, y in batches:
            if done == count:
                return
            target = y if spoil is None or done not in spoil else y * spoil[done]
            optimizer.zero_grad()
            loss = loss_fn(model(x), target)
            loss.backward()
            if before_step is not None:
                before_step(done)
            if isinstance(optimizer, Controlled | Certified):
                optimizer.step(loss)
            else:
                optimizer.step()
            done += 1


def bits(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same_bits(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(_bytes(left[name]), _bytes(right[name])), name


def _bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8)
