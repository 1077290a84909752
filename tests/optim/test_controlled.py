"""Controlled: the same epochs as its naive twin, around every kind of inner optimizer; rollbacks, probe, safeguard."""

import copy
import math
import pickle

import prodigyopt
import pytest
import schedulefree
import torch
from torch import nn

from cmalight import CMALight, Controlled, Objective, Outcome
from cmalight.optim.state import UNKNOWN
from cmalight.optim.rules import as_state
from cmalight.rules.tolerant import Watch
from tests.helpers import MSE, copied_state, network, run_epoch, same_state, small_problem, split, table
from tests.reference_controlled import Twin

SETTINGS = {"tolerance": 1.5, "patience": 2, "growth": 1.5, "theta": 0.5}

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
    return Controlled(make(list(model.parameters())), **{**SETTINGS, "probe": False, **settings})


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


@each_base
def test_every_epoch_is_the_twins(make):
    model, batches, objective = small_problem()
    twin_model = network()
    twin = Twin(twin_model, make, batches, MSE, **SETTINGS)
    optimizer = controlled(model, make, safeguard=False)
    outcomes = []
    for _ in range(30):
        report = run_epoch(optimizer, objective, model, batches)
        outcomes.append(report.outcome.name.lower())
        assert outcomes[-1] == twin.epoch()
        assert report.next_lr == pytest.approx(twin.zeta, rel=1e-12)
        for ours, theirs in zip(model.parameters(), twin_model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert "new_best" in outcomes
    assert {"growth_undone", "refused", "tolerated", "stagnated"} & set(outcomes)
    if make is BASES["adam"]:
        assert set(outcomes) == {"new_best", "growth_undone", "refused", "certified", "tolerated", "stagnated"}
    assert optimizer.evaluations <= twin.evaluations  # known values are not evaluated again


@each_base
def test_an_undone_epoch_restores_weights_and_the_bases_state_bit_for_bit(make):
    model, batches, objective = small_problem()
    optimizer = controlled(model, make, early_rejection=False)

    def settings_of_the_base():
        return [
            {n: v for n, v in g.items() if n in optimizer.base.defaults} for g in all_state(optimizer)["param_groups"]
        ]

    epochs = (run_epoch(optimizer, objective, model, batches) for _ in range(20))
    raised = next(report for report in epochs if report.next_lr > report.lr)
    weights, state, settings = copied_state(model), all_state(optimizer)["state"], settings_of_the_base()
    lr = raised.next_lr
    for outcome, factor in ((Outcome.GROWTH_UNDONE, raised.lr / raised.next_lr), (Outcome.REFUSED, 0.5)):
        report = run_epoch(optimizer, objective, model, batches, loss_fn=lambda output, y: 1e6 * MSE(output, y))
        lr *= factor
        assert (report.outcome, report.next_lr) == (outcome, pytest.approx(lr))
        assert same_state(copied_state(model), weights)
        assert same(all_state(optimizer)["state"], state)
        after = settings_of_the_base()
        assert [group["lr"] for group in after] == pytest.approx([lr] * len(after))
        assert same(*([{n: v for n, v in g.items() if n != "lr"} for g in groups] for groups in (after, settings)))


@pytest.mark.parametrize("make", [BASES["prodigy"], BASES["schedule-free"]])
def test_a_refused_first_epoch_leaves_the_base_as_it_was_made(make):
    """Also in entries of its groups that its first step adds, as Prodigy's does."""
    model, batches, _ = small_problem()
    optimizer = controlled(model, make, lr=1e6, early_rejection=False)
    before = [dict(group) for group in optimizer.base.param_groups]
    report = run_epoch(optimizer, lambda: 1e-9, model, batches)
    assert report.outcome is Outcome.REFUSED
    assert not optimizer.state
    counted = {"lr", *optimizer._fresh_state()}
    for group, earlier in zip(optimizer.param_groups, before, strict=True):
        assert group.keys() == earlier.keys()
        assert all(group[name] == earlier[name] for name in group.keys() - counted - {"params"})


def test_a_diverged_epoch_is_undone():
    model, batches, objective = small_problem()
    optimizer = controlled(model, lambda params: torch.optim.SGD(params, lr=1e200))
    before = copied_state(model)
    report = run_epoch(optimizer, objective, model, batches)
    assert report.outcome is Outcome.DIVERGED
    assert same_state(copied_state(model), before)
    assert report.next_lr == 0.5e200


@pytest.mark.parametrize("rule", ["tolerant", "light"])
def test_early_rejection_changes_nothing_but_the_time(rule):
    runs = []
    for early in (True, False):
        model, batches, objective = small_problem(size=5)
        optimizer = controlled(model, lambda p: torch.optim.Adam(p, lr=3.0), rule=rule, early_rejection=early)
        steps = []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        reports = [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(25)]
        runs.append((copied_state(model), [r.next_lr for r in reports], [r.phi for r in reports], len(steps)))
    (weights, lrs, phis, steps), (full_weights, full_lrs, full_phis, full_steps) = runs
    assert same_state(weights, full_weights)
    assert lrs == full_lrs
    assert phis == full_phis
    assert steps < full_steps


@pytest.mark.parametrize("last", [1e6, math.inf], ids=["high to the end", "not finite in the end"])
def test_a_growth_that_is_undone_early_is_undone_as_at_the_end(last):
    runs = []
    for early in (True, False):
        model, batches, objective = small_problem(size=5)
        optimizer = controlled(model, early_rejection=early)
        assert run_epoch(optimizer, objective, model, batches).outcome is Outcome.NEW_BEST
        steps = []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        with optimizer.epoch(objective) as epoch:
            for number, (x, y) in enumerate(epoch.batches(batches), start=1):
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss * (last if number == len(batches) else 1e6), len(y))
                optimizer.step()
        control = {name: optimizer.param_groups[0][name] for name in as_state(Watch.from_start(0.0))}
        runs.append((copied_state(model), control, epoch.report.next_lr, len(steps), epoch.report.outcome))
    (weights, control, lr, steps, outcome), (full_weights, full_control, full_lr, full_steps, full_outcome) = runs
    assert (outcome, full_outcome) == (
        Outcome.GROWTH_UNDONE,
        Outcome.GROWTH_UNDONE if last == 1e6 else Outcome.DIVERGED,
    )
    assert steps < full_steps
    assert same_state(weights, full_weights)
    assert (control, lr) == (full_control, full_lr)
    assert lr == pytest.approx(0.03)


def harmful(optimizer, objective, model, batches):
    return run_epoch(optimizer, objective, model, batches, loss_fn=lambda output, y: 1e6 * MSE(output, y)).outcome


def test_a_growth_is_still_on_probation_after_a_checkpoint_and_an_abandoned_epoch():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    assert run_epoch(optimizer, objective, model, batches).outcome is Outcome.NEW_BEST
    loaded = controlled(model)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    for one in (optimizer, loaded):
        assert harmful(one, objective, model, batches) is Outcome.GROWTH_UNDONE
        assert harmful(one, objective, model, batches) is Outcome.REFUSED


def test_a_step_size_that_somebody_else_sets_is_not_on_probation():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    assert run_epoch(optimizer, objective, model, batches).outcome is Outcome.NEW_BEST
    optimizer.param_groups[0]["lr"] = 0.02
    assert harmful(optimizer, objective, model, batches) is Outcome.REFUSED
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_a_state_of_before_there_was_probation_is_loaded():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        group.pop("raised", None)
    optimizer.load_state_dict(state)
    assert harmful(optimizer, objective, model, batches) is Outcome.REFUSED


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


def test_cmalight_under_the_tolerant_rule_is_controlled_gradient_descent():
    model, batches, objective = small_problem(size=20)
    twin, _, twin_objective = small_problem(size=20)
    optimizer = CMALight(model.parameters(), lr=0.3, theta=0.5, rule="tolerant")
    other = Controlled(torch.optim.SGD(twin.parameters(), lr=0.3))
    for _ in range(12):
        assert run_epoch(optimizer, objective, model, batches) == run_epoch(other, twin_objective, twin, batches)
    assert same_state(copied_state(model), copied_state(twin))


def test_coupled_weight_decay_is_part_of_the_objective_and_decoupled_is_not():
    model, batches, objective = small_problem()
    plain = objective()
    norm = sum(float(p.detach().square().sum()) for p in model.parameters())
    coupled = controlled(model, lambda p: torch.optim.Adam(p, weight_decay=0.4))
    assert run_epoch(coupled, objective, model, batches).phi < plain + 0.2 * norm
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
    assert run_epoch(optimizer, objective, model, batches).evaluations == 1


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
    optimizer = controlled(model, lambda p: torch.optim.Adam(p, lr=50.0))
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


class TestProbe:
    def problem(self, **layers):
        x, y = table(samples=400)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Dropout(0.2), nn.Linear(8, 1)).double()
        return model, split(x, y, 20)

    def epochs(self, optimizer, model, batches, number: int):
        torch.manual_seed(3)
        objective = Objective(model, MSE, batches, mode="eval")
        return [run_epoch(optimizer, objective, model, batches, early=True) for _ in range(number)]

    def test_it_leaves_no_trace_but_the_step_size(self):
        """Also the random numbers that dropout draws are those of a run without it."""
        model, batches = self.problem()
        probed = controlled(model, lambda p: torch.optim.Adam(p, lr=1e-5), probe=True)
        reports = self.epochs(probed, model, batches, 3)
        assert reports[0].lr > 1e-4
        twin, _ = self.problem()
        told = controlled(twin, lambda p: torch.optim.Adam(p, lr=reports[0].lr))
        assert self.epochs(told, twin, batches, 3) == reports
        assert same_state(copied_state(model), copied_state(twin))

    def test_from_everywhere_it_finds_the_same_order_of_magnitude(self):
        first = set()
        for exponent in range(-5, 2):
            model, batches = self.problem()
            optimizer = controlled(model, lambda p, lr=10.0**exponent: torch.optim.Adam(p, lr=lr), probe=True)
            first.add(f"{self.epochs(optimizer, model, batches, 1)[0].lr:.3g}")
        assert len(first) == 1

    @pytest.mark.parametrize(
        ("make", "largest"), [(torch.optim.Adam, 1e-2), (torch.optim.NAdam, 2e-2), (torch.optim.SGD, 1.0)]
    )
    @pytest.mark.parametrize("lr", [1e-4, 1.0])
    def test_with_adam_and_its_kin_it_goes_to_ten_times_their_default_at_most(self, make, largest, lr):
        """Weights so far off that every larger step of Adam's gains more; SGD takes what it is given."""
        x, y = table(samples=400)
        model = nn.Linear(4, 1).double()
        nn.init.constant_(model.weight, 1e3)
        optimizer = Controlled(make(model.parameters(), lr=lr))
        rates = []
        optimizer.register_step_pre_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
        self.epochs(optimizer, model, split(x, y, 20), 1)
        assert max(rates) <= largest * 1.001
        assert max(rates) >= largest / 10

    def test_it_happens_once_and_costs_no_evaluation(self):
        model, batches = self.problem()
        optimizer = controlled(model, probe=True)
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append(1))
        reports = self.epochs(optimizer, model, batches, 1)
        assert reports[0].evaluations == 1
        after_first = len(steps)
        assert after_first >= len(batches) + 3 * min(12, len(batches))
        self.epochs(optimizer, model, batches, 1)
        assert len(steps) == after_first + len(batches)

    def test_groups_keep_their_ratio(self):
        model, batches = self.problem()
        groups = [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[3].parameters(), "lr": 1e-4}]
        optimizer = Controlled(torch.optim.Adam(groups))
        self.epochs(optimizer, model, batches, 2)
        first, second = (group["lr"] for group in optimizer.param_groups)
        assert first == pytest.approx(10 * second)

    def test_a_loop_that_is_left_in_a_trial_changes_nothing_but_the_step_size(self, caplog):
        model, batches = self.problem()
        optimizer = controlled(model, probe=True)
        before = copied_state(model)
        with optimizer.epoch(Objective(model, MSE, batches, mode="eval")) as epoch:
            for number, (x, y) in enumerate(epoch.batches(batches)):
                if number == 15:
                    break
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
        assert epoch.report.outcome is Outcome.NO_STEP
        assert "while step sizes were tried" in caplog.text
        assert same_state(copied_state(model), before)
        assert not optimizer.state
        assert self.epochs(optimizer, model, batches, 1)[0].outcome is Outcome.NEW_BEST

    @pytest.mark.parametrize("left_after", [2, 7])
    def test_a_loop_that_is_always_left_early_is_not_refused(self, left_after, caplog):
        model, batches = self.problem()
        optimizer = controlled(model, probe=True)
        outcomes = []
        for _ in range(3):
            with optimizer.epoch(Objective(model, MSE, batches, mode="eval")) as epoch:
                for number, (x, y) in enumerate(epoch.batches(batches)):
                    if number == left_after:
                        break
                    optimizer.zero_grad()
                    loss = MSE(model(x), y)
                    loss.backward()
                    epoch.observe(loss, len(y))
                    optimizer.step()
            outcomes.append(epoch.report.outcome)
        assert outcomes[0] is Outcome.NO_STEP
        assert outcomes[1] is not Outcome.NO_STEP

    def test_a_loop_that_goes_on_after_abandoning_just_ends(self):
        model, batches = self.problem()
        optimizer = controlled(model, probe=True)
        with optimizer.epoch(Objective(model, MSE, batches, mode="eval")) as epoch:
            for x, y in epoch.batches(batches):
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
                epoch.abandon()
        assert epoch.report is None

    def test_a_window_of_accumulation_cut_by_a_trial_leaves_no_gradient(self):
        """Windows of 5 batches, trials of 12: each trial ends inside a window."""
        model, batches = self.problem()
        optimizer = controlled(model, probe=True)
        begun_with_a_gradient = []
        with optimizer.epoch(Objective(model, MSE, batches, mode="eval")) as epoch:
            for number, (x, y) in enumerate(epoch.batches(batches), start=1):
                if number % 12 == 1:
                    begun_with_a_gradient.append(next(model.parameters()).grad is not None)
                loss = MSE(model(x), y)
                (loss / 5).backward()
                epoch.observe(loss, len(y))
                if number % 5 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        assert len(begun_with_a_gradient) > 4
        assert not any(begun_with_a_gradient[:4])

    @pytest.mark.parametrize("seed", range(6))
    def test_trained_weights_get_a_step_size_that_moves_them(self, seed):
        """The trial's batches differ from all the data by more than any gain that is left."""
        model, batches, objective = nearly_solved(4000, 20, offset=0.02, seed=seed)
        f_0 = objective()
        optimizer = Controlled(torch.optim.Adam(model.parameters()))
        first = run_epoch(optimizer, objective, model, batches, early=True)
        assert first.lr >= 1e-6
        for _ in range(9):
            run_epoch(optimizer, objective, model, batches, early=True)
        assert objective() < f_0

    def test_an_epoch_abandoned_in_a_trial_tries_again(self):
        model, batches = self.problem()
        optimizer = controlled(model, lambda p: torch.optim.Adam(p, lr=1e-5), probe=True)
        before = copied_state(model)
        with optimizer.epoch(Objective(model, MSE, batches, mode="eval")) as epoch:
            for number, (x, y) in enumerate(epoch.batches(batches)):
                optimizer.zero_grad()
                loss = MSE(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
                if number == 15:
                    epoch.abandon()
                    break
        assert same_state(copied_state(model), before)
        assert optimizer.param_groups[0]["lr"] == 1e-5
        assert self.epochs(optimizer, model, batches, 1)[0].lr > 1e-4


def test_a_trained_start_moves_although_its_epochs_lie_above_it():
    """Noisy data near the solution: f̃ > f(w⁰) for every small ζ."""
    model, batches, objective = nearly_solved(200, 10, offset=0.01)
    f_0 = objective()
    optimizer = Controlled(torch.optim.SGD(model.parameters(), lr=1e-4))
    reports = [run_epoch(optimizer, objective, model, batches) for _ in range(30)]
    assert reports[0].f_tilde > f_0
    assert reports[0].outcome is Outcome.TOLERATED
    assert objective() < f_0
    assert optimizer.evaluations == 1


def test_the_safeguard_goes_on_with_certified_gradient_epochs():
    model, batches, objective = small_problem()
    optimizer = controlled(model)
    run_epoch(optimizer, objective, model, batches)
    for group in optimizer.param_groups:
        group["lr"] *= 1e-9
    run_epoch(optimizer, objective, model, batches)
    assert optimizer.param_groups[0]["safeguarded"]
    assert optimizer.param_groups[0]["f_0"] == UNKNOWN
    twin = copy.deepcopy(model)
    cmalight = CMALight(twin.parameters(), lr=0.5, theta=0.5, delta=0.5, line_search="certified")
    twin_objective = Objective(twin, MSE, batches)
    for _ in range(10):
        ours, theirs = (
            run_epoch(optimizer, objective, model, batches),
            run_epoch(cmalight, twin_objective, twin, batches),
        )
        assert ours == theirs
    assert same_state(copied_state(model), copied_state(twin))


def test_no_safeguard_where_it_was_not_asked_for():
    model, batches, objective = small_problem()
    optimizer = controlled(model, safeguard=False)
    run_epoch(optimizer, objective, model, batches)
    for group in optimizer.param_groups:
        group["lr"] *= 1e-9
    run_epoch(optimizer, objective, model, batches)
    assert not optimizer.param_groups[0]["safeguarded"]


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
    first = controlled(model, probe=True)
    for _ in range(3):
        run_epoch(first, objective, model, batches, early=True)
    again = controlled(model, lambda _: first.base, probe=True, patience=7, lr=1e-4)
    state = again.param_groups[0]
    assert (state["f_0"], state["epochs"], state["probed"], state["patience"]) == (UNKNOWN, 0, 0, 7)
    assert again.state[next(model.parameters())]  # the moments are the base's, and stay
    assert run_epoch(again, objective, model, batches).evaluations == 1


def test_steps_outside_an_epoch_are_noticed_where_the_base_hides_them():
    """Prodigy changes the weights past their version counters."""
    model, batches, objective = small_problem()
    optimizer = controlled(model, BASES["prodigy"])
    assert run_epoch(optimizer, objective, model, batches, loss_fn=lambda o, y: 1e6 * MSE(o, y)).alpha == 0.0
    assert optimizer.param_groups[0]["f_current"] == pytest.approx(objective())
    optimizer.zero_grad()
    MSE(model(batches[0][0]), batches[0][1]).backward()
    optimizer.step()
    assert optimizer.param_groups[0]["f_current"] == UNKNOWN


def test_a_setting_of_the_control_is_not_a_groups():
    model, _, _ = small_problem()
    optimizer = Controlled(torch.optim.Adam(model[0].parameters()))
    with pytest.raises(ValueError, match="patience belongs to the optimizer"):
        optimizer.add_param_group({"params": list(model[2].parameters()), "patience": 9})
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
        ("tolerance", 0.9),
        ("tolerance", float("nan")),
        ("growth", 0.5),
        ("patience", 0),
        ("patience", 2.5),
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
