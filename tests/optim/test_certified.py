"""Certified: its twin, its manners, and the problems that the light search cannot."""

import copy
import itertools
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from cmalight import SOAP, Certified, Objective, Outcome, TensorBatches
from cmalight.rules import schedule
from tests import reference
from tests.optim.plain_loop import MSE, adam, assert_same_bits, bits, data, network, take_steps
from tests.optim.test_matches_reference import Twin

pytestmark = pytest.mark.filterwarnings("ignore:Certified has no schedule", "ignore:Certified has undone 20 epochs")


def certified(model, batches, *, base=None, **options):
    base = adam(model) if base is None else base
    return Certified(base, Objective(model, MSE, batches), **options)


def naive_adam(lr):
    """An epoch of Adam on a flat vector."""

    def epoch(objective, w, state, scale, batches):
        m, v, t = state or (torch.zeros_like(w), torch.zeros_like(w), 0)
        for indices in batches:
            g, t = objective.gradient(w, indices), t + 1
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - lr * scale * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        return w, (m, v, t)

    return epoch


@pytest.mark.parametrize("reshuffle", [False, True], ids=["fixed", "reshuffled"])
@pytest.mark.parametrize("lr", [1e-3, 0.1, 30.0])
def test_it_is_its_twin_also_with_a_short_last_batch(lr, reshuffle):
    twin = Twin(batch_size=16, reshuffle=reshuffle)
    records = reference.certified(twin.problem(), twin.flat(), twin.orders, naive_adam(lr), eta=2.0)
    objective = Objective(twin.model, MSE, TensorBatches(twin.x, twin.y, batch_size=16, order="fixed"))
    base = torch.optim.Adam(twin.model.parameters(), lr=lr)
    optimizer = Certified(base, objective, eta=2.0)
    for order, expected in zip(twin.orders, records, strict=True):
        before = objective.evaluations
        for i in order:
            optimizer.zero_grad()
            MSE(twin.model(twin.x[i]), twin.y[i]).backward()
            optimizer.step()
        first = order is twin.orders[0]
        assert objective.evaluations - (0 if first else before) == expected.evaluations
        assert optimizer.eta == expected.next_lr
        torch.testing.assert_close(twin.flat(), expected.w, rtol=1e-7, atol=1e-9)
    assert lr == 1e-3 or any(r.line is not None for r in records)


class Harm(torch.optim.SGD):
    """Steps along a fixed direction: the plain epochs alone do the work."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                with torch.no_grad():
                    p.add_(group["lr"])


@pytest.mark.parametrize("order", ["fixed", "reshuffle"])
@pytest.mark.parametrize(
    "make_base",
    [
        partial(torch.optim.Adam, lr=1e-2),
        partial(torch.optim.Adam, lr=1.0),
        partial(SOAP, lr=1e-2),
        partial(Harm, lr=100.0),
    ],
    ids=["Adam", "Adam with a large lr", "SOAP", "a base that only does harm"],
)
def test_any_base_goes_on_where_the_light_search_stalls(make_base, order):
    """Noisy least squares, whose four batches disagree at the solution."""
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    b = a.sum(1, keepdim=True) + 3 * torch.randn(40, 1, generator=generator, dtype=torch.float64)
    model = nn.Linear(2, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    batches = TensorBatches(a, b, batch_size=10, order=order)
    objective = Objective(model, MSE, batches)
    optimizer, losses = Certified(make_base(model.parameters()), objective), []
    for _ in range(150):
        take_steps(optimizer, model, batches, 4)
        losses.append(objective())
    optimizer.zero_grad()
    (4 * MSE(model(a), b)).backward()
    assert model.weight.grad.norm() < 1e-2
    assert objective.evaluations / 150 < 4.0  # ours, and about one, until rounding decides and tiny steps are extended
    assert all(later <= earlier for earlier, later in itertools.pairwise(losses))


@pytest.mark.parametrize("start", [4.0, -20.0])
def test_the_circle_of_the_light_search_is_left(start):
    """f_1 = w²/2 and f_2 = 12 (√(1+w²) − 1) under plain SGD steps, which circle between ±√12."""
    w = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    losses = [lambda: w.square() / 2, lambda: 12 * ((1 + w.square()).sqrt() - 1)]
    base = torch.optim.SGD([w], lr=0.5)
    optimizer = Certified(base, lambda: sum(f().item() for f in losses) / 2, steps_per_epoch=2)
    for _ in range(60):
        for loss in losses:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    assert abs(w.item()) < 1e-4


def test_an_epoch_that_is_undone_is_undone_in_everything():
    model, batches = network(norm=True), data()
    optimizer = certified(model, batches)
    take_steps(optimizer, model, batches, 16)
    assert optimizer.report.outcome is Outcome.KEPT
    before, state = bits(model), copy.deepcopy(optimizer.base.state_dict())
    take_steps(optimizer, model, batches, 16, spoil={3: 1e4})
    assert (optimizer.report.outcome, optimizer.scale) == (Outcome.UNDONE, 0.5)
    assert_same_bits(bits(model), before)
    for name, value in state["state"][0].items():
        assert torch.equal(optimizer.base.state_dict()["state"][0][name], value)


def test_nan_is_undone_in_base_and_plain_epochs():
    model, batches = network(), data()
    optimizer = certified(model, batches)
    before = bits(model)
    take_steps(optimizer, model, batches, 16, spoil={5: math.nan})
    assert (optimizer.report.outcome, optimizer.eta) == (Outcome.DIVERGED, 0.5)
    take_steps(optimizer, model, batches, 16, spoil={5: math.nan})
    assert (optimizer.report.outcome, optimizer.eta) == (Outcome.DIVERGED, 0.25)
    assert_same_bits(bits(model), before)
    take_steps(optimizer, model, batches, 16)
    assert optimizer.report.outcome is Outcome.KEPT


@pytest.mark.parametrize(
    ("given", "done"), [({"total_steps": 320}, 2.5 / 320), ({"progress": lambda: 0.9}, 0.9)], ids=["steps", "progress"]
)
def test_the_base_follows_the_schedule_and_plain_steps_do_not(given, done):
    model, batches = network(), data()
    optimizer = certified(model, batches, **given)
    take_steps(optimizer, model, batches, 3)
    assert 0 < schedule.factor(done) < 1
    assert optimizer.last_lr == 1e-2 * schedule.factor(done)
    take_steps(optimizer, model, batches, 13, spoil={5: math.nan})
    state = copy.deepcopy(optimizer.base.state_dict()["state"])
    take_steps(optimizer, model, batches, 1)
    assert (optimizer.last_lr, optimizer.param_groups[0]["lr"]) == (optimizer.eta, 1e-2)
    assert optimizer.base.state_dict()["state"].keys() == state.keys()


def test_a_short_last_batch_is_seen_in_a_loader():
    x = torch.randn(10, 6)
    loader = DataLoader(TensorDataset(x, x[:, :1]), batch_size=4)
    assert certified(network(), loader)._last_batch == 0.5
    assert certified(network(), loader, steps_per_epoch=1)._last_batch == 1.0
    loader = DataLoader(TensorDataset(x, x[:, :1]), batch_size=4, drop_last=True)
    assert certified(network(), loader)._last_batch == 1.0


def test_who_does_not_know_the_length_of_an_epoch_is_told_what_to_give():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    model = network()
    for objective in (lambda: 1.0, Objective(model, MSE, DataLoader(Stream()))):
        with pytest.raises(ValueError, match="give steps_per_epoch"):
            Certified(adam(model), objective)
        assert Certified(adam(model), objective, steps_per_epoch=3).steps_per_epoch == 3
    with pytest.raises(ValueError, match="steps_per_epoch"):
        Certified(adam(model), lambda: 1.0, steps_per_epoch=0)


def test_a_base_that_trains_at_another_point_is_refused():
    model, batches = network(), data()
    base = adam(model)
    base.param_groups[0]["train_mode"] = True
    with pytest.raises(ValueError, match="cannot watch"):
        certified(model, batches, base=base)


def test_an_evaluation_that_fails_leaves_the_weights_of_the_last_epoch():
    model, batches = network(), data()
    optimizer = certified(model, batches)
    take_steps(optimizer, model, batches, 16)
    before = bits(model)
    objective = optimizer.objective
    objective.before_batch = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        take_steps(optimizer, model, batches, 16)
    assert_same_bits(bits(model), before)


@pytest.mark.parametrize("layer", [nn.Dropout(0.3), nn.BatchNorm1d(8)], ids=["dropout", "BatchNorm"])
def test_epochs_are_kept_where_the_model_draws_random_numbers(layer):
    """f has the same random numbers every time, so that noise does not refuse what lowers it."""
    torch.manual_seed(0)
    model, batches = nn.Sequential(nn.Linear(6, 8), layer, nn.Tanh(), nn.Linear(8, 1)), data()
    optimizer = certified(model, batches, total_steps=480)
    start, kept = optimizer.objective(), 0
    for _ in range(30):
        take_steps(optimizer, model, batches, 16)
        kept += optimizer.report.outcome.keeps
    assert kept >= 20
    assert optimizer.objective() < 0.7 * start


def test_a_run_that_has_stalled_is_warned_about():
    """The objective is not what the steps minimise."""
    model, batches = network(), data()
    values = itertools.count()
    optimizer = Certified(adam(model), lambda: float(next(values)), steps_per_epoch=1, total_steps=100)
    with pytest.warns(UserWarning, match="Certified has undone 20 epochs in a row: training has stalled"):
        take_steps(optimizer, model, batches, 20)
