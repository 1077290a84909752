"""Controlled around every kind of inner optimizer: what is undone, saved, copied, loaded, added and refused."""

import copy
import math
import pickle
from dataclasses import asdict, dataclass, make_dataclass, replace

import prodigyopt
import pytest
import schedulefree
import torch
from torch import nn

from cmalight import CMALight, Controlled, Objective, Outcome, fit
from cmalight.optim.control.state import UNKNOWN, ControlState, names
from cmalight.rules.rule import Decision, Rule
from cmalight.rules.tolerant import Remembered, TolerantRule
from tests.helpers import MSE, copied_state, harmful_epoch, network, run_epoch, same_state, small_problem, split, table
from tests.optim.steady import Steady

BASES = {
    "adam": lambda params, lr=0.03: torch.optim.Adam(params, lr=lr),
    "adamw": lambda params, lr=0.03: torch.optim.AdamW(params, lr=lr),
    "amsgrad": lambda params, lr=0.03: torch.optim.Adam(params, lr=lr, amsgrad=True),
    "nadam": lambda params, lr=0.03: torch.optim.NAdam(params, lr=lr),
    "radam": lambda params, lr=0.1: torch.optim.RAdam(params, lr=lr),
    "rmsprop": lambda params, lr=0.03: torch.optim.RMSprop(params, lr=lr),
    "adagrad": lambda params, lr=0.3: torch.optim.Adagrad(params, lr=lr),
    "adadelta": lambda params, lr=3.0: torch.optim.Adadelta(params, lr=lr),
    "momentum": lambda params, lr=0.3: torch.optim.SGD(params, lr=lr, momentum=0.9),
    "schedule-free": lambda params, lr=0.3: schedulefree.AdamWScheduleFree(params, lr=lr),
    "adafactor": lambda params, lr=0.3: torch.optim.Adafactor(params, lr=lr),
    "muon": lambda params, lr=0.3: torch.optim.Muon([p for p in params if p.ndim == 2], lr=lr),
    "prodigy": lambda params, lr=3.0: prodigyopt.Prodigy(params, lr=lr),
    "cmalight": lambda params, lr=1.0: CMALight(params, lr=lr),
}
each_base = pytest.mark.parametrize("make", BASES.values(), ids=BASES.keys())


def controlled(model: nn.Module, make=BASES["adam"], **settings) -> Controlled:
    return Controlled(make(list(model.parameters())), **settings)


def steady(model: nn.Module, make=BASES["adam"]) -> Steady:
    return Steady(make(list(model.parameters())))


def all_state(optimizer: torch.optim.Optimizer) -> dict:
    return copy.deepcopy(optimizer.state_dict())


def same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def remembered(optimizer: Controlled) -> dict[str, float]:
    return {name: optimizer.param_groups[0][name] for name in names(Remembered)}


@each_base
def test_an_undone_epoch_restores_weights_and_the_bases_state_bit_for_bit(make):
    model, batches, objective = small_problem()
    optimizer = steady(model, make)

    def settings_of_the_base():
        return [
            {n: v for n, v in g.items() if n in optimizer.base.defaults} for g in all_state(optimizer)["param_groups"]
        ]

    outcomes = [run_epoch(optimizer, objective, model, batches).outcome for _ in range(3)]
    assert any(outcome.keeps for outcome in outcomes)
    lr = float(optimizer.param_groups[0]["lr"])
    weights, state, settings = copied_state(model), all_state(optimizer)["state"], settings_of_the_base()
    for _ in range(2):
        report = harmful_epoch(optimizer, objective, model, batches)
        lr *= 0.5
        assert (report.outcome, report.next_lr) == (Outcome.REFUSED, pytest.approx(lr))
        assert same_state(copied_state(model), weights)
        assert same(all_state(optimizer)["state"], state)
        after = settings_of_the_base()
        assert [group["lr"] for group in after] == pytest.approx([lr] * len(after))
        assert same(*([{n: v for n, v in g.items() if n != "lr"} for g in groups] for groups in (after, settings)))


@pytest.mark.parametrize("make", [BASES["prodigy"], BASES["schedule-free"]])
def test_a_refused_first_epoch_leaves_the_base_as_it_was_made(make):
    """Also in entries of its groups that its first step adds, as Prodigy's does."""
    model, batches, objective = small_problem()
    optimizer = steady(model, make)
    before = [dict(group) for group in optimizer.base.param_groups]
    assert harmful_epoch(optimizer, objective, model, batches).outcome is Outcome.REFUSED
    assert not optimizer.state
    counted = {"lr", *names(ControlState, Remembered)}
    for group, earlier in zip(optimizer.param_groups, before, strict=True):
        assert group.keys() == earlier.keys()
        assert all(group[name] == earlier[name] for name in group.keys() - counted - {"params"})


@dataclass(frozen=True)
class Seen:
    seen: int = 0
    refused: int = 0


@dataclass(frozen=True)
class EverySecond(Rule):
    """Keeps the first epoch, undoes the second, and so on."""

    Memory = Seen

    def decide(self, inner, known, memory, ask):
        if memory.seen % 2 == 0:
            return Decision(Outcome.KEPT, inner.zeta, 1.0, known.phi, None), replace(memory, seen=memory.seen + 1)
        return Decision(Outcome.REFUSED, 0.0, 0.5, known.phi, None), Seen(memory.seen + 1, memory.refused + 1)


class Alternating(Controlled):
    def rule(self):
        return EverySecond()


def test_a_rule_of_ones_own_remembers_beyond_an_undone_epoch():
    model, batches, objective = small_problem()
    optimizer = Alternating(BASES["adam"](model.parameters()))
    outcomes = [run_epoch(optimizer, objective, model, batches).outcome for _ in range(5)]
    assert outcomes == [Outcome.KEPT, Outcome.REFUSED] * 2 + [Outcome.KEPT]
    assert optimizer.control.memory(optimizer.rule()) == Seen(seen=5, refused=2)
    again = Alternating(optimizer.base)
    assert again.control.memory(again.rule()) == Seen()


@pytest.mark.parametrize("name", ["steps", "theta", "betas", "params"])
def test_a_memory_whose_names_are_taken_is_refused(name):
    """Of the control's state, of its settings, of the base's, of torch."""
    memory = make_dataclass("Own", [(name, float, 1.0)], frozen=True)
    rule = type("OwnRule", (EverySecond,), {"Memory": memory})
    kind = type("Own", (Controlled,), {"rule": lambda self: rule()})
    base = BASES["adam"](network().parameters())
    before = dict(base.defaults)
    with pytest.raises(ValueError, match=rf"Own: {name};.*called otherwise"):
        kind(base)
    assert before == {known: base.param_groups[0][known] for known in before}


def test_a_diverged_epoch_is_undone():
    model, batches, objective = small_problem()
    optimizer = steady(model, lambda params: torch.optim.SGD(params, lr=1e200))
    before = copied_state(model)
    report = run_epoch(optimizer, objective, model, batches)
    assert report.outcome is Outcome.DIVERGED
    assert same_state(copied_state(model), before)
    assert report.next_lr == 0.5e200


def test_early_rejection_changes_nothing_but_the_time():
    runs = []
    for early in (True, False):
        model, batches, objective = small_problem(size=5)
        optimizer = controlled(model, lambda p: torch.optim.Adam(p, lr=3.0), rule="light", early_rejection=early)
        steps = []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        reports = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(25)]
        runs.append((copied_state(model), [r.next_lr for r in reports], [r.phi for r in reports], len(steps)))
    (weights, lrs, phis, steps), (full_weights, full_lrs, full_phis, full_steps) = runs
    assert same_state(weights, full_weights)
    assert lrs == full_lrs
    assert phis == full_phis
    assert steps < full_steps


def test_what_the_rule_remembers_outlives_a_checkpoint_and_an_abandoned_epoch():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    for _ in range(3):
        run_epoch(optimizer, objective, model, batches)
    before = remembered(optimizer)
    assert before != asdict(Remembered())
    loaded = controlled(model)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    assert remembered(optimizer) == remembered(loaded) == before


def test_the_rule_is_told_of_a_step_size_that_somebody_else_has_set():
    class Told(TolerantRule):
        def after_outside_change(self, memory, *, zeta):
            told.append(zeta)
            return memory

    class Watching(Controlled):
        def rule(self):
            return Told(super().rule().settings)

    told = []
    model, batches, objective = small_problem()
    optimizer = Watching(torch.optim.Adam(model.parameters(), lr=0.03))
    for _ in range(3):
        run_epoch(optimizer, objective, model, batches)
    assert told == []
    home = optimizer.param_groups[0]
    factor = home["lr"] / home["height"]
    assert factor < 1.0  # it still rises
    home["lr"] *= 1e-3
    run_epoch(optimizer, objective, model, batches)
    assert told == [pytest.approx(1e-3 * 7e-3)]


@pytest.mark.parametrize("budget", [None, 12])
@pytest.mark.parametrize(
    "scheduler",
    [
        lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),  # multiplies what is there
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),  # sets it
    ],
    ids=["multiplies", "sets"],
)
def test_a_scheduler_that_lowers_the_step_size_is_followed_exactly(scheduler, budget):
    """Beside the rise and the line to zero, which are no part of what it finds. Warnings are errors here."""
    model, batches, objective = small_problem()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3), max_epochs=budget)
    scheduled = scheduler(optimizer)
    home = optimizer.param_groups[0]
    for epoch in range(12):
        run_epoch(optimizer, objective, model, batches)
        assert home["height"] == pytest.approx(7e-3 * 0.9**epoch)
        assert home["lr"] <= home["height"] * (1 + 1e-9)
        scheduled.step()


def test_what_is_usual_for_a_base_that_finds_its_own_step_size_is_its_default():
    class FindsItsOwn(torch.optim.Adam):
        def __init__(self, params, lr=1.0, **options):
            super().__init__(params, lr=lr, **options)

    model, _, _ = small_problem()
    assert Controlled(FindsItsOwn(model.parameters())).param_groups[0]["usual"] == 1.0
    assert Controlled(torch.optim.Adam(model.parameters())).param_groups[0]["usual"] == pytest.approx(7e-3)


def test_a_state_without_what_the_rule_remembers_is_loaded():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    state = copy.deepcopy(optimizer.state_dict())
    for name in names(Remembered):
        del state["param_groups"][0][name]
    optimizer.load_state_dict(state)
    assert remembered(optimizer) == asdict(Remembered())
    run_epoch(optimizer, objective, model, batches)


@pytest.mark.parametrize("rule", ["light", "certified"])
def test_the_papers_rule_around_a_gradient_step_is_cmalight(rule):
    """With batches of one size there is no short batch, in which alone the two would differ."""
    model, batches, objective = small_problem(size=20)
    twin, _, twin_objective = small_problem(size=20)
    optimizer = Controlled(torch.optim.SGD(model.parameters(), lr=2.0), rule=rule)
    cmalight = CMALight(twin.parameters(), lr=2.0, line_search=rule)
    for _ in range(12):
        ours = run_epoch(optimizer, objective, model, batches)
        theirs = run_epoch(cmalight, twin_objective, twin, batches)
        assert ours == theirs
    assert same_state(copied_state(model), copied_state(twin))


def test_coupled_weight_decay_is_part_of_the_objective_and_decoupled_is_not():
    model, batches, objective = small_problem()
    plain = objective()
    norm = sum(float(p.detach().square().sum()) for p in model.parameters())
    coupled = controlled(model, lambda p: torch.optim.Adam(p, weight_decay=0.4))
    run_epoch(coupled, objective, model, batches)
    assert coupled.param_groups[0]["f_0"] == pytest.approx(plain + 0.2 * norm)
    for make in (
        lambda p: torch.optim.AdamW(p, weight_decay=0.4),
        lambda p: torch.optim.NAdam(p, weight_decay=0.4, decoupled_weight_decay=True),
        lambda p: schedulefree.AdamWScheduleFree(p, weight_decay=0.4),
        lambda p: prodigyopt.Prodigy(p, weight_decay=0.4),
    ):
        model, batches, objective = small_problem()
        decoupled = controlled(model, make)
        run_epoch(decoupled, objective, model, batches)
        assert decoupled.param_groups[0]["f_0"] == pytest.approx(plain)


@each_base
def test_a_state_dict_goes_on_bit_for_bit(make):
    model, batches, objective = small_problem()
    optimizer = controlled(model, make)
    for _ in range(5):
        run_epoch(optimizer, objective, model, batches)
    other, _, other_objective = small_problem(seed=1)
    other.load_state_dict(copied_state(model))
    loaded = controlled(other, make)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(5):
        ours = run_epoch(optimizer, objective, model, batches)
        theirs = run_epoch(loaded, other_objective, other, batches)
        assert ours.outcome is theirs.outcome
    if make is BASES["nadam"]:  # torch's NAdam loads its float32 `mu_product` as float64
        torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=1e-6, atol=1e-9)
    else:
        assert same_state(copied_state(model), copied_state(other))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_goes_its_own_way_and_stays_attached_to_its_base(copied):
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    other, other_optimizer = copied((model, optimizer))
    assert other_optimizer.param_groups is other_optimizer.base.param_groups
    assert other_optimizer.state is other_optimizer.base.state
    other_objective = Objective(other, MSE, batches)
    for _ in range(4):
        assert run_epoch(optimizer, objective, model, batches) == run_epoch(
            other_optimizer, other_objective, other, batches
        )
    assert same_state(copied_state(model), copied_state(other))


def test_a_state_dict_of_the_base_alone_begins_a_control():
    model, batches, objective = small_problem()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y in batches:
        adam.zero_grad()
        MSE(model(x), y).backward()
        adam.step()
    optimizer = controlled(model)
    optimizer.load_state_dict(adam.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert run_epoch(optimizer, objective, model, batches).outcome.keeps
    assert optimizer.param_groups[0]["f_0"] < UNKNOWN


def test_a_state_loaded_into_the_base_itself_is_seen():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    optimizer.base.load_state_dict(copy.deepcopy(optimizer.base.state_dict()))
    run_epoch(optimizer, objective, model, batches)
    assert optimizer.param_groups is optimizer.base.param_groups


def test_buffers_go_back_with_the_weights():
    x, y = table()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Sigmoid(), nn.Linear(5, 1)).double()
    batches = split(x, y, 20)
    optimizer = steady(model, lambda p: torch.optim.Adam(p, lr=50.0))
    before = copied_state(model)
    assert run_epoch(optimizer, Objective(model, MSE, batches), model, batches).outcome is Outcome.REFUSED
    assert same_state(copied_state(model), before)


def test_abandoning_an_epoch_restores_the_bases_state():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    weights, state = copied_state(model), all_state(optimizer)
    with optimizer.epoch(objective) as epoch:
        for x, y in batches[:3]:
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
        epoch.abandon()
    assert same_state(copied_state(model), weights)
    assert same(all_state(optimizer)["state"], state["state"])


def nearly_solved(samples: int, size: int, *, offset: float, seed: int = 0):
    """A linear model close to the solution of a problem that is nothing but noise, its batches and its objective."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    y = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    model = nn.Linear(5, 1).double()
    with torch.no_grad():
        ones = torch.cat([x, torch.ones(samples, 1, dtype=torch.float64)], dim=1)
        solution = torch.linalg.lstsq(ones, y).solution
        model.weight.copy_(solution[:5].T + offset)
        model.bias.copy_(solution[5])
    batches = split(x, y, size)
    return model, batches, Objective(model, MSE, batches)


def test_a_trained_start_moves_although_its_epochs_lie_above_it():
    """Noisy data near the solution: f̃ > f(w⁰) for every small ζ."""
    model, batches, objective = nearly_solved(200, 10, offset=0.01)
    f_0 = objective()
    optimizer = Controlled(torch.optim.SGD(model.parameters(), lr=1e-4))
    reports = [run_epoch(optimizer, objective, model, batches) for _ in range(30)]
    assert reports[0].f_tilde > f_0
    assert reports[0].outcome.keeps
    assert objective() < f_0
    assert optimizer.evaluations == 0  # the sample says it


def test_the_step_of_the_base_itself_is_not_taken_for_ours():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    before = copied_state(model)
    with pytest.raises(RuntimeError, match="not by step\\(\\) of Controlled"), optimizer.epoch(objective) as epoch:
        for x, y in batches:
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.base.step()
    assert same_state(copied_state(model), before)


def test_a_base_that_was_controlled_before_begins_anew():
    model, batches, objective = small_problem()
    first = controlled(model)
    for _ in range(3):
        run_epoch(first, objective, model, batches, early=True)
    again = controlled(model, lambda _: first.base, window=7, lr=1e-4)
    state = again.param_groups[0]
    assert (state["f_0"], state["epochs"], state["steps"], state["window"]) == (UNKNOWN, 0, 0, 7)
    assert {name: state[name] for name in names(Remembered)} == asdict(Remembered())
    assert again.state[next(model.parameters())]  # the moments are the base's, and stay
    assert run_epoch(again, objective, model, batches).outcome.keeps


def test_steps_outside_an_epoch_are_noticed_where_the_base_hides_them():
    """Prodigy changes the weights past their version counters."""
    model, batches, objective = small_problem()
    optimizer = controlled(model, BASES["prodigy"])
    assert harmful_epoch(optimizer, objective, model, batches).alpha == 0.0
    assert optimizer.param_groups[0]["sample_current"] == pytest.approx(objective())
    optimizer.zero_grad()
    MSE(model(batches[0][0]), batches[0][1]).backward()
    optimizer.step()
    assert optimizer.param_groups[0]["sample_current"] == UNKNOWN


def test_a_setting_of_the_control_is_not_a_groups():
    model, _, _ = small_problem()
    optimizer = Controlled(torch.optim.Adam(model[0].parameters()))
    with pytest.raises(ValueError, match="growth belongs to the optimizer"):
        optimizer.add_param_group({"params": list(model[2].parameters()), "growth": 9})
    assert len(optimizer.param_groups) == 1


def test_a_base_whose_settings_have_our_names_is_refused():
    class Bounded(torch.optim.SGD):
        def __init__(self, params):
            super().__init__(params, lr=0.1)
            self.defaults["gamma"] = 1e-3

    with pytest.raises(ValueError, match="settings of the same names: gamma"):
        Controlled(Bounded(network().parameters()))


def test_lr_is_where_it_begins():
    model = network()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=1e-3), lr=0.2)
    assert optimizer.param_groups[0]["lr"] == 0.2


def test_a_new_group_is_the_bases_too():
    model = network()
    extra = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = controlled(model)
    optimizer.add_param_group({"params": [extra], "lr": 0.5})
    assert optimizer.base.param_groups[1]["params"][0] is extra
    assert "betas" in optimizer.param_groups[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p, "needs a torch optimizer"),
        (lambda p: torch.optim.LBFGS(p), "cannot watch L-BFGS"),
        (lambda p: Controlled(torch.optim.Adam(p)), "was given a Controlled optimizer"),
        (lambda p: torch.optim.Adam(p, maximize=True), "maximize=True is not supported"),
        (lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)), "lr as a Tensor is not supported"),
    ],
)
def test_what_cannot_be_controlled_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Controlled(make(list(network().parameters())))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tolerance", 0.0),
        ("tolerance", 1.0),
        ("tolerance", float("nan")),
        ("growth", 0.5),
        ("usual", 0.0),
        ("usual", float("nan")),
        ("usual", -math.inf),
        ("decay", 1.5),
        ("window", 2.5),
        ("window", 0),
        ("max_epochs", 0),
        ("max_epochs", float("inf")),
        ("max_batches", -1),
        ("max_batches", "many"),
        ("theta", 1.0),
        ("gamma", 0.0),
        ("lr", -1.0),
        ("rule", "strict"),
        ("tau", 0.0),
        ("delta", 2.0),
        ("max_extrapolations", -1),
    ],
)
def test_wrong_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"Invalid {name} value"):
        Controlled(torch.optim.Adam(network().parameters()), **{name: value})


@pytest.mark.parametrize("rule", ["light", "certified"])
@pytest.mark.parametrize("limit", ["max_epochs", "max_batches"])
def test_a_budget_is_refused_by_rules_that_know_none(rule, limit):
    with pytest.raises(ValueError, match=f"rule='{rule}' knows no budget"):
        Controlled(torch.optim.Adam(network().parameters()), rule=rule, **{limit: 10})


@pytest.mark.parametrize("rule", ["light", "certified"])
def test_fit_tells_every_rule_how_long_the_run_is(rule):
    model = network()
    optimizer = Controlled(torch.optim.Adam(model.parameters()), rule=rule)
    fit(model, MSE, table(), optimizer=optimizer, max_epochs=2, batch_size=20, progress=False)
    assert optimizer.budget.max_epochs == 2


def test_a_usual_step_size_that_is_infinite_is_unknown():
    """As for SGD: whatever Adam was given is where it begins, and where it rises from."""
    model, batches, objective = small_problem()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=0.05), usual=math.inf)
    report = run_epoch(optimizer, objective, model, batches)
    assert (report.outcome, report.next_lr / report.lr) == (Outcome.GROWN, pytest.approx(10.0))


def test_a_start_on_a_plateau_does_not_shrink_the_step_size_to_nothing():
    """Whatever moves ends a little above such a start, which is as good as a constant output can be."""
    torch.manual_seed(0)
    x = torch.rand(2000, 4)
    y = (4 * x.sum(1, keepdim=True)).sin()
    hidden = [layer for _ in range(4) for layer in (torch.nn.Linear(20, 20), torch.nn.Sigmoid())]
    model = torch.nn.Sequential(torch.nn.Linear(4, 20), torch.nn.Sigmoid(), *hidden, torch.nn.Linear(20, 1))
    with torch.no_grad():
        model[-1].weight.mul_(1e-3)
        model[-1].bias.copy_(y.mean())
    batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 2000, 32)]
    objective = Objective(model, torch.nn.functional.mse_loss, batches)
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15), max_epochs=20)
    start = objective()
    for _ in range(10):
        run_epoch(optimizer, objective, model, batches)
        assert objective() <= 1.06 * start
    assert optimizer.param_groups[0]["height"] >= 3e-3
