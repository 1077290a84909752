"""The loop of the README on small problems, for tests of `Controlled`."""

import torch
from torch import nn

from cmalight import Controlled, Objective, TensorBatches
from cmalight.rules.watchdog import Watchdog

MSE = nn.MSELoss()
SHORT = Watchdog(first_window=4, last_window=4)


def data(samples=256, batch_size=16, *, dtype=torch.float32, order="reshuffle"):
    x = torch.randn(samples, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    return TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=batch_size, order=order)


def network(*, norm=False, dtype=torch.float32):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(6, 8), middle, nn.Tanh(), nn.Linear(8, 1)).to(dtype)


def adam(model, **options):
    return torch.optim.Adam(model.parameters(), **{"lr": 1e-2, **options})


def controlled(model, batches, *, base=None, rule=SHORT, loss_fn=MSE, **options):
    base = adam(model) if base is None else base
    return Controlled(base, Objective(model, loss_fn, batches), rule=rule, **options)


def watched(*, norm=False, **options):
    """A network, and Adam under control."""
    model = network(norm=norm)
    return model, controlled(model, data(), **options)


def take_steps(optimizer, model, batches, count, *, loss_fn=MSE, spoil=None, before_step=None):
    """`count` steps over the batches, again and again; `spoil` names steps whose targets are garbage."""
    done = 0
    while done < count:
        for x, y in batches:
            if done == count:
                return
            target = y if spoil is None or done not in spoil else y * spoil[done]
            optimizer.zero_grad()
            loss_fn(model(x), target).backward()
            if before_step is not None:
                before_step(done)
            optimizer.step()
            done += 1


def bits(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same_bits(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].cpu().numpy().tobytes() == right[name].cpu().numpy().tobytes(), name
