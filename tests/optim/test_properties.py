"""Section by section what must hold on every run, on random problems (docs/understand/algorithm.md)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cmalight import CMALight, Objective, Outcome
from tests.helpers import MSE, run_epoch, split


class Run:
    """A random sum of convex quadratics under CMALight, with what every epoch did."""

    def __init__(self, seed, *, lr, line_search, reshuffle, epochs, weight_decay=0.0, samples=24, batch_size=5):
        generator = torch.Generator().manual_seed(seed)
        self.a = torch.randn(samples, 3, generator=generator, dtype=torch.float64)
        self.b = self.a.sum(1, keepdim=True) + torch.randn(samples, 1, generator=generator, dtype=torch.float64)
        self.model = torch.nn.Linear(3, 1, bias=False).double()
        with torch.no_grad():
            self.model.weight.copy_(torch.randn(1, 3, generator=generator, dtype=torch.float64))
        self.weight_decay, self.samples, self.batch_size = weight_decay, samples, batch_size
        self.optimizer = CMALight(self.model.parameters(), lr=lr, line_search=line_search, weight_decay=weight_decay)
        objective = Objective(self.model, MSE, split(self.a, self.b, batch_size))
        self.values = [self.f()]
        self.reports = []
        for _ in range(epochs):
            order = torch.randperm(samples, generator=generator) if reshuffle else torch.arange(samples)
            batches = [(self.a[i], self.b[i]) for i in order.split(batch_size)]
            self.reports.append(run_epoch(self.optimizer, objective, self.model, batches))
            self.values.append(self.f())

    def f(self):
        with torch.no_grad():
            w = self.model.weight
            return (MSE(self.model(self.a), self.b) + self.weight_decay / 2 * w.square().sum()).item()

    def gradient_norm(self):
        """‖∇f‖ of the sum over batches."""
        self.model.zero_grad()
        w = self.model.weight
        f = MSE(self.model(self.a), self.b) + self.weight_decay / 2 * w.square().sum()
        (f * self.samples / self.batch_size).backward()
        return w.grad.norm().item()


runs = {
    "seed": st.integers(0, 10_000),
    "lr": st.floats(-4, 3).map(lambda e: 10.0**e),
    "reshuffle": st.booleans(),
    "weight_decay": st.sampled_from([0.0, 0.1]),
}


@pytest.mark.filterwarnings("ignore:Each of the last")
@given(**runs, line_search=st.sampled_from(["light", "certified"]))
@settings(max_examples=60)
def test_phi_and_the_step_size_never_grow_and_every_move_is_justified(seed, lr, reshuffle, weight_decay, line_search):
    """Under the certified search an accepted extrapolation decreases the objective sufficiently, too."""
    run = Run(seed, lr=lr, line_search=line_search, reshuffle=reshuffle, epochs=30, weight_decay=weight_decay)
    f_0, phi, slack = run.values[0], run.values[0], 1e-12
    batches = run.samples / run.batch_size
    for report, before, after in zip(run.reports, run.values, run.values[1:], strict=False):
        assert report.phi <= phi * (1 + slack)
        assert report.next_lr <= report.lr
        if report.alpha:
            below_start = min(report.f_tilde, after) <= f_0 * (1 + slack)
            assert below_start or (line_search == "certified" and after <= before * (1 + slack))
        else:
            assert after == before
        if line_search == "certified" and report.outcome in (Outcome.SEARCH_SHORT, Outcome.SEARCH_SUCCEEDED):
            step = 0.9 * report.alpha if report.alpha > report.lr else report.lr
            assert after <= before - 1e-2 * step * report.direction_norm**2 / batches + slack * before
        phi = report.phi


@pytest.mark.filterwarnings("ignore:Each of the last")
@pytest.mark.parametrize(("lr", "reshuffle"), [(1e-2, True), (0.3, False), (10.0, True), (1e4, False)])
def test_certified_converges_on_strongly_convex_sums_also_from_a_far_too_large_step(lr, reshuffle):
    run = Run(0, lr=lr, line_search="certified", reshuffle=reshuffle, epochs=150, weight_decay=0.1)
    assert run.gradient_norm() < 1e-3
    assert run.reports[-1].next_lr < 1e-2 * lr
