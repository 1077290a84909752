"""No run dies of a small step size, and nothing that would spoil later epochs is kept."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from cmalight import CMA, IG, CMALight, Controlled, Objective, Outcome
from tests.fuzz.cases import cases
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, small_problem, split, table
from tests.optim.steady import Steady

SGD, ADAM, RMSPROP, RPROP = torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Rprop
OURS = {
    "light": lambda params, lr: CMALight(params, lr=lr),
    "certified": lambda params, lr: CMALight(params, lr=lr, line_search="certified"),
}
WATCHED = {
    **OURS,
    "cma": lambda params, lr: CMA(params, lr=lr),
    "sgd": lambda params, lr: Controlled(SGD(params, lr=lr)),
    "momentum": lambda params, lr: Controlled(SGD(params, lr=lr, momentum=0.9)),
    "adam": lambda params, lr: Controlled(ADAM(params, lr=lr)),
    "rmsprop": lambda params, lr: Controlled(RMSPROP(params, lr=lr)),
    "rprop": lambda params, lr: Controlled(RPROP(params, lr=lr)),
}
ALL = {**WATCHED, "ig": lambda params, lr: IG(params, lr=lr)}


def each(makers):
    return pytest.mark.parametrize("make", makers.values(), ids=makers.keys())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* has stalled:RuntimeWarning")
@each(ALL)
def test_a_step_size_that_shrinks_in_every_epoch_is_never_zero(make):
    """Every epoch leads up a slope; halved 1,075 times, lr would be 0."""
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = make([w], 0.5)
    optimizer.param_groups[0]["theta"] = 0.5
    for _ in range(1100):
        with optimizer.epoch(lambda: w.abs().item()) as epoch:
            for _ in range(2):
                optimizer.zero_grad()
                w.grad = -torch.ones_like(w)
                epoch.observe(10.0, 1)
                optimizer.step()
        assert math.isfinite(w.item())
        if not isinstance(optimizer, IG):
            assert w.item() == 0.0
    assert optimizer.has_converged
    assert 0.0 < optimizer.param_groups[0]["lr"] < 1e-250


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* has stalled:RuntimeWarning", "ignore:.* goes round in a circle:RuntimeWarning")
@each(ALL)
def test_a_long_run_of_a_small_problem_does_not_die(make):
    """Two parabolas that disagree, until nothing can move any more; CMALIGHT_FUZZ_CASES=100000 goes to 10⁵ epochs."""
    w = nn.Parameter(torch.tensor([3.0], dtype=torch.float64))

    def loss(batch: int) -> Tensor:
        return (0.5 * (batch + 1) * (w - batch).square()).sum()

    def objective() -> float:
        with torch.no_grad():
            return (0.5 * (loss(0) + loss(1))).item()

    f_0 = objective()
    optimizer = make([w], 0.3)
    generator = torch.Generator().manual_seed(0)
    after_convergence = 0
    for _ in range(cases(1500)):
        with optimizer.epoch(objective) as epoch:
            for batch in torch.randperm(2, generator=generator).tolist():
                optimizer.zero_grad()
                value = loss(batch)
                value.backward()
                epoch.observe(value, 1)
                optimizer.step()
        assert optimizer.param_groups[0]["lr"] > 0.0
        after_convergence += optimizer.has_converged
        if after_convergence > 50:
            break
    assert objective() < f_0


def controlled_problem(make, dtype):
    torch.manual_seed(0)
    model = network().to(dtype)
    batches = split(*(t.to(dtype) for t in table()), 20)
    optimizer = Steady(make(model.parameters()))
    return model, batches, Objective(model, MSE, batches), optimizer


def epoch_with_a_gradient(optimizer, objective, model, batches, *, number, value):
    """Whose every entry has that value in one batch, with an ordinary loss."""
    with optimizer.epoch(objective) as epoch:
        for batch, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            if batch == number:
                for p in model.parameters():
                    p.grad.fill_(value)
            epoch.observe(loss, len(y))
            optimizer.step()
    return epoch.report


@pytest.mark.parametrize(
    ("make", "dtype", "value"),
    [
        pytest.param(lambda p: ADAM(p, lr=0.01), torch.float32, 1e25, id="adam, float32"),
        pytest.param(lambda p: ADAM(p, lr=0.01), torch.float64, 1e200, id="adam, float64"),
        pytest.param(lambda p: ADAM(p, lr=0.01, amsgrad=True), torch.float32, 1e25, id="amsgrad"),
        pytest.param(lambda p: RMSPROP(p, lr=0.01), torch.float32, 1e25, id="rmsprop"),
        pytest.param(lambda p: torch.optim.Adagrad(p, lr=0.01), torch.float32, 1e25, id="adagrad"),
    ],
)
@pytest.mark.parametrize("number", [0, 4])
def test_what_an_epoch_leaves_in_the_bases_state_has_to_be_finite(make, dtype, value, number):
    """One batch with a gradient whose square overflows and an ordinary loss: weights hardly move, the state dies."""
    model, batches, objective, optimizer = controlled_problem(make, dtype)
    assert run_epoch(optimizer, objective, model, batches).outcome.keeps
    weights, state = copied_state(model), copy.deepcopy(optimizer.base.state_dict()["state"])
    report = epoch_with_a_gradient(optimizer, objective, model, batches, number=number, value=value)
    assert report.outcome is Outcome.DIVERGED
    assert same_state(copied_state(model), weights)
    torch.testing.assert_close(optimizer.base.state_dict()["state"], state, rtol=0, atol=0)
    before = objective()
    outcomes = [run_epoch(optimizer, objective, model, batches).outcome for _ in range(3)]
    assert any(outcome.keeps for outcome in outcomes)
    assert objective() < before


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("number", range(5))
def test_rprop_is_left_with_nothing_that_is_not_finite(number, value):
    """It takes the sign of NaN for 0 and remembers the gradient until the next batch."""
    model, batches, objective, optimizer = controlled_problem(lambda p: RPROP(p, lr=0.01), torch.float32)
    run_epoch(optimizer, objective, model, batches)
    before = copied_state(model)
    report = epoch_with_a_gradient(optimizer, objective, model, batches, number=number, value=value)
    held = [t for own in optimizer.base.state.values() for t in own.values()]
    assert all(torch.isfinite(t).all() for t in [*held, *model.parameters()])
    if number == 4:
        assert report.outcome is Outcome.DIVERGED
        assert same_state(copied_state(model), before)


@pytest.mark.filterwarnings("ignore:.* has stalled:RuntimeWarning", "ignore:.* goes round in a circle:RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lr", [0.5, 1e3, 1e10])
@each(WATCHED)
def test_with_one_batch_an_epoch_no_point_above_the_start_is_kept(make, lr, dtype):
    """f̃ is then f(w^k): it says nothing of where the step led."""
    torch.manual_seed(0)
    model = network().to(dtype)
    batches = [tuple(t.to(dtype) for t in table())]
    objective = Objective(model, MSE, batches)
    optimizer = make(model.parameters(), lr)
    f_0 = objective()
    for _ in range(25):
        run_epoch(optimizer, objective, model, batches)
        assert objective() <= f_0 * (1 + 1e-6)


@pytest.mark.parametrize("ending", ["abandoned", "rejected", "failed"])
@each({"light": WATCHED["light"], "adam": WATCHED["adam"], "momentum": WATCHED["momentum"]})
def test_a_parameter_that_is_unfrozen_in_mid_epoch_is_rolled_back(make, ending):
    model, batches, objective = small_problem()
    model[0].requires_grad_(False)
    optimizer = make(model.parameters(), 0.05)
    before = copied_state(model)

    def epoch_under_way() -> None:
        with optimizer.epoch(objective) as epoch:
            for number, (x, y) in enumerate(batches):
                if number == 2:
                    model[0].requires_grad_(True)
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(1e6 * loss, len(y))
                optimizer.step()
            assert not torch.equal(model[0].weight, before["0.weight"])
            if ending == "abandoned":
                epoch.abandon()
            elif ending == "failed":
                epoch.observe(math.nan, 1)
            else:
                with torch.no_grad():
                    model[2].weight.add_(100.0)

    epoch_under_way()
    assert same_state(copied_state(model), before)
    assert run_epoch(optimizer, objective, model, batches).alpha > 0.0
