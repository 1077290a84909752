"""Problems on which the last steps of an epoch lead far away, unseen by its losses: nothing bad is kept."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from cmalight import CMALight, Controlled, Objective, TensorBatches
from cmalight.rules.tolerant import LEVEL, SLACK
from tests.fuzz.cases import cases
from tests.helpers import MSE, copied_state, run_epoch, same_state

WATCHED = {
    "certified": lambda params, lr: CMALight(params, lr=lr, line_search="certified"),
    "sgd": lambda params, lr: Controlled(torch.optim.SGD(params, lr=lr)),
    "momentum": lambda params, lr: Controlled(torch.optim.SGD(params, lr=lr, momentum=0.9)),
    "adam": lambda params, lr: Controlled(torch.optim.Adam(params, lr=lr)),
    "sgd, with a budget": lambda params, lr: Controlled(torch.optim.SGD(params, lr=lr), max_epochs=60),
    "adam, with a budget": lambda params, lr: Controlled(torch.optim.Adam(params, lr=lr), max_epochs=60),
}
each = pytest.mark.parametrize("make", WATCHED.values(), ids=WATCHED.keys())
pytestmark = pytest.mark.filterwarnings("ignore:.* has stalled:RuntimeWarning")


def assert_nothing_bad_is_kept(values: list[float], *, slack: float = 0.0) -> None:
    """No run ends above f(w⁰), and no point above 10 f(w⁰) survives the next epoch; `slack` while nothing is gained."""
    f_0 = values[0]
    assert all(map(math.isfinite, values))
    assert values[-1] <= f_0 * (1 + (slack if min(values) > LEVEL * f_0 else 0.0) + 1e-6)
    assert not any(min(pair) > 10 * f_0 for pair in itertools.pairwise(values[1:]))


def linear_regression(factor: float, seed: int):
    """200 rows, one of them `factor` times as large."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(200, 5, generator=generator, dtype=torch.float64)
    y = x @ torch.randn(5, 1, generator=generator, dtype=torch.float64)
    y += 0.1 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    x[0] *= factor
    y[0] *= factor
    torch.manual_seed(seed)
    return nn.Linear(5, 1).double(), x, y, generator


@pytest.mark.slow
@pytest.mark.parametrize("factor", [30.0, 100.0, 1000.0])
@pytest.mark.parametrize("lr", [1e-3, 1e-2, 0.5])
@each
def test_one_row_that_is_much_larger_than_the_others(make, lr, factor):
    """60 epochs of 20 reshuffled batches; CMALIGHT_FUZZ_CASES=8 tries that many seeds."""
    for seed in range(cases(1)):
        model, x, y, generator = linear_regression(factor, seed)
        objective = Objective(model, MSE, [(x, y)])
        optimizer = make(model.parameters(), lr)
        values = [objective()]
        for _ in range(60):
            order = torch.randperm(200, generator=generator)
            run_epoch(optimizer, objective, model, [(x[i], y[i]) for i in order.split(10)], early=True)
            values.append(objective())
        assert_nothing_bad_is_kept(values)


def a_large_row(x: Tensor) -> None:
    x[0] *= 1000.0


def a_rare_feature(x: Tensor) -> None:
    x[:, 0] = 0.0
    x[:2, 0] = 100.0


def heavy_tails(x: Tensor) -> None:
    x /= torch.randn(x.shape, generator=torch.Generator().manual_seed(7)).abs()


BASES = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adam": partial(torch.optim.Adam, eps=1e-15),
}


@pytest.mark.parametrize("budget", [{"max_epochs": 12}, {}], ids=["a budget", "none"])
@pytest.mark.parametrize("spoil", [a_large_row, a_rare_feature, heavy_tails], ids=lambda f: f.__name__)
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_what_a_few_of_many_rows_do_is_seen(base, spoil, budget):
    """5,000 rows, of which a random sample has a tenth, and hardly ever these."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5_000, 20, generator=generator)
    spoil(x)
    y = x @ torch.randn(20, 1, generator=generator) / 4.5 + 0.1 * torch.randn(5_000, 1, generator=generator)
    for lr, hidden in itertools.product((1e-3, 0.1), (0, 30)):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(20, hidden), nn.ReLU(), nn.Linear(hidden, 1)) if hidden else nn.Linear(20, 1)
        objective = Objective(model, MSE, TensorBatches(x, y, batch_size=64))
        optimizer = Controlled(base(model.parameters(), lr=lr), **budget)
        values = [objective()]
        for _ in range(12):
            order = torch.randperm(5_000, generator=generator)
            run_epoch(optimizer, objective, model, [(x[i], y[i]) for i in order.split(64)])
            values.append(objective())
        assert_nothing_bad_is_kept(values, slack=SLACK)


class Scalar(nn.Module):
    def __init__(self, start: float, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start], dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.expand(len(x), 1)


@pytest.mark.parametrize("lr", [0.5, 5e-3])
@each
def test_two_quadratics_of_very_different_curvature(make, lr):
    """Curvatures 0.2 and 2000 at ζ = 0.5: the second batch's step leads 8·10⁵ times as high, after all losses."""
    model = Scalar(1.0)
    curvatures = torch.tensor([[0.2], [2000.0]], dtype=torch.float64)

    def loss_fn(w: Tensor, curvature: Tensor) -> Tensor:
        return (0.5 * curvature * w.square()).mean()

    batches = [(curvatures[:1], curvatures[:1]), (curvatures[1:], curvatures[1:])]
    objective = Objective(model, loss_fn, batches)
    optimizer = make(model.parameters(), lr)
    values = [objective()]
    for _ in range(40):
        run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn)
        values.append(objective())
    assert_nothing_bad_is_kept(values)


@pytest.mark.parametrize("lr", [0.5, 5.0, 500.0])
@each
def test_a_poisson_loss_in_single_precision_is_never_kept_where_it_is_infinite(make, lr):
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = torch.poisson(torch.exp(x.sum(dim=1, keepdim=True)))
    model = nn.Linear(3, 1)
    loss_fn = nn.PoissonNLLLoss()
    batches = list(zip(x.split(6), y.split(6), strict=True))
    objective = Objective(model, loss_fn, batches)
    optimizer = make(model.parameters(), lr)
    values = [objective()]
    for _ in range(30):
        run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn)
        values.append(objective())
    assert all(map(math.isfinite, values))
    assert values[-1] <= values[0] + 1e-6 * abs(values[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_eight_batches_an_epoch_do_not_end_in_a_deadlock(seed):
    """An epoch that ends higher than its losses say must not have all the epochs after it refused."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(128, 6, generator=generator, dtype=torch.float64)
    y = torch.sigmoid(x @ torch.randn(6, 1, generator=generator, dtype=torch.float64))
    y += 0.05 * torch.randn(128, 1, generator=generator, dtype=torch.float64)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 20), nn.Sigmoid(), nn.Linear(20, 1)).double()
    objective = Objective(model, MSE, [(x, y)])
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-15))
    refused_in_a_row, longest, lowest = 0, 0, math.inf
    for _ in range(80):
        order = torch.randperm(128, generator=generator)
        report = run_epoch(optimizer, objective, model, [(x[i], y[i]) for i in order.split(16)], early=True)
        refused_in_a_row = 0 if report.outcome.keeps else refused_in_a_row + 1
        longest, lowest = max(longest, refused_in_a_row), min(lowest, report.next_lr)
    assert longest <= 6
    assert lowest > 1e-4


def parabola_and_root():
    """f₁ = w²/2, f₂ = 12(√(1+w²) − 1), in this order."""
    model = Scalar(6.0)
    which = torch.tensor([[0.0], [1.0]], dtype=torch.float64)

    def loss_fn(w: Tensor, which: Tensor) -> Tensor:
        return torch.where(which == 0.0, 0.5 * w.square(), 12.0 * ((1.0 + w.square()).sqrt() - 1.0)).mean()

    batches = [(which[:1], which[:1]), (which[1:], which[1:])]
    return model, loss_fn, batches, Objective(model, loss_fn, batches)


@pytest.mark.parametrize("controlled", [False, True])
def test_the_cycle_of_the_light_search_is_noticed_and_warned_about_once(controlled):
    """An attracting two-cycle at ±3.46: line 17 succeeds in every epoch, and the step size never shrinks."""
    model, loss_fn, batches, objective = parabola_and_root()
    if controlled:
        optimizer = Controlled(torch.optim.SGD(model.parameters(), lr=0.5), rule="light")
    else:
        optimizer = CMALight(model.parameters(), lr=0.5)
    with pytest.warns(RuntimeWarning, match="goes round in a circle") as caught:
        for _ in range(100):
            report = run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn)
    assert len(caught) == 1
    assert report.next_lr == 0.5
    assert abs(model.w.item()) == pytest.approx(3.46, abs=0.01)


def test_the_certified_search_leaves_the_cycle():
    model, loss_fn, batches, objective = parabola_and_root()
    optimizer = CMALight(model.parameters(), lr=0.5, line_search="certified")
    for _ in range(100):
        run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn)
    assert objective() < 0.1


def test_a_run_that_still_gains_is_not_taken_for_a_cycle():
    model, loss_fn, batches, objective = parabola_and_root()
    optimizer = CMALight(model.parameters(), lr=1e-3)
    before = copied_state(model)
    for _ in range(60):
        run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn)
    assert not same_state(copied_state(model), before)
