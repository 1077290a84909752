"""What many tests need: small problems, and the loop of docs/guides/loop.md."""

import importlib.util
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from cmalight import CMA, CMALight, EpochReport, Objective

MSE = nn.MSELoss()
each_of_the_paper = pytest.mark.parametrize(
    "make", [CMALight, partial(CMALight, line_search="certified"), CMA], ids=["light", "certified", "cma"]
)
needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")


def script(path):
    """A script of the repository as a module; modules beside it are found as where it is run."""
    file = Path(__file__).parent.parent / path
    spec = importlib.util.spec_from_file_location(f"script_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file.parent)
        spec.loader.exec_module(module)
    return module


def run_epoch(optimizer, objective, model, batches, *, loss_fn=MSE, at_end=None) -> EpochReport:
    """One epoch; `at_end()` is called after its last step, before it is judged."""
    with optimizer.epoch(objective) as epoch:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
        if at_end is not None:
            at_end()
    assert epoch.report is not None
    return epoch.report


def force_line_search(optimizer, objective):
    """φ = 0 cannot be beaten on line 6, so line 13 is reached."""
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    optimizer._watch.known = replace(optimizer.known, phi=0.0)


def table(samples: int = 100, features: int = 4, *, seed: int = 0, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """Inputs and the outputs of a random sigmoid teacher."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    teacher = torch.randn(features, 1, generator=generator, dtype=torch.float64)
    y = torch.sigmoid(x @ teacher) + noise * torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    return x, y


def split(x: Tensor, y: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(size), y.split(size), strict=True))


def network(features: int = 4, hidden: int = 5, *, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, hidden), nn.Sigmoid(), nn.Linear(hidden, 1)).double()


def small_problem(size: int = 16, *, seed: int = 0):
    """A network, its batches and its objective."""
    model = network(seed=seed)
    batches = split(*table(), size)
    return model, batches, Objective(model, MSE, batches)


def begun(make=CMALight, **options):
    """An optimizer on the small problem, with all that `run_epoch` takes."""
    model, batches, objective = small_problem()
    return make(model.parameters(), **options), objective, model, batches


def copied_state(module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same_state(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Bit for bit, NaN included."""
    return left.keys() == right.keys() and all(_same_bits(left[name], right[name]) for name in left)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


class NothingReachesTheHost(TorchDispatchMode):
    """Fails where a value of a tensor reaches Python or another device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        assert name not in {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero"}, name
        device = (kwargs or {}).get("device")
        assert name != "aten::_to_copy" or device in (None, args[0].device), name
        return func(*args, **(kwargs or {}))


def wait_for(condition, seconds=600):
    """Its first value that is true; the limit is for what never comes, not for slow machines."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")
