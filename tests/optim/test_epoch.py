"""An epoch: what it counts, what it refuses, how it ends."""

import dataclasses
from dataclasses import replace

import pytest
import torch
from torch import nn

from cmalight import CMA, IG, CMALight, EpochReport, Objective, Outcome
from tests.helpers import MSE, begun, copied_state, network, run_epoch, same_state, small_problem, split, table


def backward(model, batch):
    x, y = batch
    loss = MSE(model(x), y)
    loss.backward()
    return loss


def weights(model):
    return torch.cat([p.detach().reshape(-1).clone() for p in model.parameters()])


def test_the_report_of_the_contract():
    model, batches, objective = small_problem()
    f_0 = objective()
    report = run_epoch(CMALight(model.parameters(), lr=0.1), objective, model, batches)
    names = "outcome lr next_lr alpha f_tilde phi direction_norm evaluations"
    assert [field.name for field in dataclasses.fields(EpochReport)] == names.split()
    assert report.outcome is Outcome.ACCEPTED
    assert (report.lr, report.next_lr, report.alpha, report.evaluations) == (0.1, 0.1, 0.1, 1)
    assert report.phi == report.f_tilde < f_0
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.lr = 1.0


def test_a_report_reads_by_itself():
    report = EpochReport(Outcome.ACCEPTED, 0.5, 0.5, 0.5, 0.25, 0.25, 3.0, 0)
    assert str(report) == (
        "loss 0.25  accepted: the loss fell enough (line 7)  lr 0.5 -> 0.5  evaluations 0  next to beat 0.25"
    )


def test_reports_add_up_to_the_optimizers_evaluations_and_direct_calls_do_not_count():
    optimizer, objective, model, batches = begun(lr=3.0, line_search="certified")
    reports = []
    for _ in range(15):
        objective()
        reports.append(run_epoch(optimizer, objective, model, batches))
    assert sum(r.evaluations for r in reports) == optimizer.evaluations > 5


def test_evaluations_of_an_abandoned_epoch_are_in_the_next_report():
    optimizer, objective, model, batches = begun(lr=0.1)
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    assert run_epoch(optimizer, objective, model, batches).evaluations == optimizer.evaluations == 1


@pytest.mark.parametrize("order", ["zero, observe", "observe, zero", "observe, step, zero"])
def test_gradient_accumulation_is_one_batch(order):
    """Two halves, each loss divided by two for the gradient, are the batch of both."""
    x, y = table(40)
    whole, halves = network(), network()
    expected = run_epoch(
        CMALight(whole.parameters(), lr=0.1), Objective(whole, MSE, split(x, y, 10)), whole, split(x, y, 10)
    )
    optimizer = CMALight(halves.parameters(), lr=0.1)
    with optimizer.epoch(Objective(halves, MSE, split(x, y, 5))) as epoch:
        for number, (a, b) in enumerate(split(x, y, 5)):
            if order == "zero, observe" and number % 2 == 0:
                optimizer.zero_grad()
            loss = MSE(halves(a), b)
            epoch.observe(loss, len(b))
            if order == "observe, zero" and number % 2 == 0:
                optimizer.zero_grad()
            (loss / 2).backward()
            if number % 2 == 1:
                optimizer.step()
                if order == "observe, step, zero":
                    optimizer.zero_grad()
    assert epoch.report.f_tilde == pytest.approx(expected.f_tilde, rel=1e-12)
    assert epoch.report.direction_norm == pytest.approx(expected.direction_norm, rel=1e-9)
    torch.testing.assert_close(weights(halves), weights(whole), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda optimizer, epoch: None, "saw no batch"),
        (lambda optimizer, epoch: (optimizer.step(), optimizer.step()), "without an observation"),
        (lambda optimizer, epoch: (epoch.observe(1.0, 16), epoch.abandon(), optimizer.step()), "was abandoned"),
    ],
    ids=["no batch", "a step without an observation", "a step after abandon"],
)
def test_an_epoch_that_makes_no_sense_is_refused(misuse, message):
    optimizer, objective, model, batches = begun()
    backward(model, batches[0])
    with pytest.raises(RuntimeError, match=message), optimizer.epoch(objective) as epoch:
        misuse(optimizer, epoch)


def test_before_and_after_its_block_an_epoch_cannot_be_used():
    optimizer, objective, model, batches = begun(lr=0.1)
    epoch = optimizer.epoch(objective)
    with pytest.raises(RuntimeError, match="not under way"):
        epoch.observe(1.0, 1)
    with epoch:
        epoch.observe(backward(model, batches[0]), 100)
        optimizer.step()
    with pytest.raises(RuntimeError, match="not under way"):
        epoch.abandon()
    with pytest.raises(RuntimeError, match="is over"), epoch:
        pass


def test_a_nested_epoch_is_refused_and_the_outer_one_goes_on():
    optimizer, objective, model, batches = begun(lr=0.1)
    with optimizer.epoch(objective) as epoch:
        with pytest.raises(RuntimeError, match="inside an epoch"), optimizer.epoch(objective):
            pass
        epoch.observe(backward(model, batches[0]), 100)
        optimizer.step()
    assert epoch.report is not None


@pytest.mark.parametrize(
    ("loss", "count", "message"),
    [
        *((loss, 1, "real scalar") for loss in (torch.ones(2), torch.ones(1, 2), torch.tensor(1j))),
        *((loss, 1, "mean loss of the batch") for loss in (None, "1", [0.5])),
        *((0.5, count, "Invalid count") for count in (0, -1, float("nan"), float("inf"), None, torch.ones(3))),
    ],
)
def test_an_observation_that_is_none_is_refused(loss, count, message):
    model, _, objective = small_problem()
    with pytest.raises(ValueError, match=message), CMALight(model.parameters()).epoch(objective) as epoch:
        epoch.observe(loss, count)


@pytest.mark.parametrize("loss", [0.5, torch.tensor([0.5]), torch.tensor(0.5, dtype=torch.bfloat16)])
def test_a_loss_may_be_any_kind_of_scalar(loss):
    optimizer, objective, model, batches = begun(lr=0.1)
    with optimizer.epoch(objective) as epoch:
        backward(model, batches[0])
        epoch.observe(loss, 100)
        optimizer.step()
    assert epoch.report.f_tilde == 0.5


def test_an_exception_runs_no_control_and_leaves_the_weights_where_they_are():
    optimizer, objective, model, batches = begun(lr=0.1)
    with pytest.raises(ZeroDivisionError), optimizer.epoch(objective) as epoch:
        epoch.observe(backward(model, batches[0]), 16)
        optimizer.step()
        left = weights(model)
        raise ZeroDivisionError
    assert epoch.report is None
    assert torch.equal(weights(model), left)
    assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer._watch.known = replace(optimizer.known, phi=0.0)
    report = run_epoch(optimizer, objective, model, batches)
    assert report.evaluations == 1 + 3  # f(w⁰); then f(w^k), which is not f(w⁰) any more, a trial, the tentative point


def test_another_weight_decay_is_another_objective():
    optimizer, objective, model, batches = begun(lr=1e6)
    run_epoch(optimizer, objective, model, batches)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    assert run_epoch(optimizer, objective, model, batches).evaluations == 1


def test_nothing_to_train_is_refused():
    model, _, objective = small_problem()
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"), CMALight(model.parameters()).epoch(objective):
        pass


def test_the_line_search_can_be_changed_in_mid_run_and_then_confirms_what_it_keeps():
    optimizer, objective, model, batches = begun(lr=0.1)
    run_epoch(optimizer, objective, model, batches)
    optimizer.line_search = "certified"
    report = run_epoch(optimizer, objective, model, batches)
    assert (report.outcome, report.evaluations) == (Outcome.ACCEPTED, 1)
    with pytest.raises(ValueError, match="expected one of light, certified"):
        optimizer.line_search = "wolfe"


def test_an_objective_that_cannot_be_called_or_returns_nothing_is_refused():
    model, batches, _ = small_problem()
    with pytest.raises(ValueError, match="expected it to return the mean loss"):
        run_epoch(CMALight(model.parameters()), lambda: None, model, batches)
    for make, objective in ((CMALight, None), (CMALight, 1.0), (IG, 5)):
        with pytest.raises(TypeError, match="needs an Objective"):
            make(model.parameters()).epoch(objective)


def test_restart_anchors_anew():
    model, batches, objective = small_problem()
    optimizer = CMALight(
        [{"params": model[0].parameters(), "lr": 0.4}, {"params": model[2].parameters(), "lr": 0.1}], lr=0.4
    )
    for _ in range(5):
        run_epoch(optimizer, objective, model, batches)
    for group in optimizer.param_groups:
        group["lr"] *= 0.25
    optimizer.restart(objective)
    assert [g["lr"] for g in optimizer.param_groups] == [0.4, 0.1]
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    assert optimizer.known.f_0 == optimizer.known.phi == optimizer.known.f_current == objective()
    optimizer.restart(objective, lr=0.8)
    assert [g["lr"] for g in optimizer.param_groups] == [0.8, 0.2]
    with pytest.raises(ValueError, match="Invalid lr"):
        optimizer.restart(objective, lr=-1.0)
    with pytest.raises(RuntimeError, match="inside an epoch"), optimizer.epoch(objective):
        optimizer.restart(objective)


def test_ig_needs_no_objective_and_with_one_evaluates_once():
    model, batches, objective = small_problem()
    reports = [run_epoch(IG(model.parameters(), lr=0.1), None, model, batches)]
    assert reports[0].evaluations == 0
    assert reports[0].phi != reports[0].phi
    optimizer = IG(model.parameters(), lr=0.1, decay=0.25)
    reports = [run_epoch(optimizer, objective, model, batches) for _ in range(3)]
    assert [r.evaluations for r in reports] == [1, 0, 0]
    assert [r.next_lr for r in reports] == pytest.approx([0.075, 0.05625, 0.0421875])
    assert reports[2].phi == min(r.f_tilde for r in reports)


def test_no_step_says_nothing():
    model, batches, objective = small_problem()
    before = copied_state(model)
    optimizer = CMALight(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="No step"), optimizer.epoch(objective) as epoch:
        epoch.observe(backward(model, batches[0]), 100)
    assert epoch.report.outcome is Outcome.NO_STEP
    assert epoch.report.next_lr == 0.1
    assert same_state(model.state_dict(), before)


def test_frozen_parameters_stay_out_of_it_also_where_they_have_a_gradient():
    model, batches, objective = small_problem()
    backward(model, batches[0])
    model[0].requires_grad_(False)
    before = copied_state(model[0])
    optimizer = CMALight(model.parameters(), lr=0.1, weight_decay=0.1)
    regularisation = 0.05 * sum(p.square().sum().item() for p in model[2].parameters())
    with optimizer.epoch(objective) as epoch:
        epoch.abandon()
    assert optimizer.known.f_0 == pytest.approx(objective() + regularisation, rel=1e-12)
    with optimizer.epoch(objective) as epoch:
        epoch.observe(backward(model, batches[0]), 100)
        optimizer.step()
    assert same_state(model[0].state_dict(), before)


def test_dict_batches_have_a_size_for_closures():
    x, y = table(10)
    model = nn.Linear(4, 1).double()
    batches = [{"x": a, "y": b} for a, b in split(x, y, 4)]
    objective = Objective(model, None, batches, forward=lambda m, b: (MSE(m(b["x"]), b["y"]), len(b["y"])))
    optimizer = CMALight(model.parameters(), lr=1e-6)
    with optimizer.epoch(objective) as epoch:
        for batch in epoch.batches(batches):

            def closure(batch=batch):
                optimizer.zero_grad()
                return backward(model, (batch["x"], batch["y"]))

            optimizer.step(closure)
    assert epoch.report.f_tilde == pytest.approx(objective(), rel=1e-4)


def test_a_block_that_is_left_early_is_not_judged_and_the_next_one_is_as_if_it_had_not_been():
    """Judged as a whole it would poison φ: the first batches alone may have a lower loss than all of them."""
    model, batches, objective = small_problem(10)
    optimizer, before = CMALight(model.parameters(), lr=0.1), copied_state(model)
    with pytest.raises(RuntimeError, match="left after 90 of 100 samples"):
        run_epoch(optimizer, objective, model, batches[:-1])
    assert same_state(model.state_dict(), before)
    assert optimizer.known.phi == optimizer.known.f_0
    assert run_epoch(optimizer, objective, model, batches).outcome is Outcome.ACCEPTED


def test_leaving_early_is_noticed_after_resuming_too():
    optimizer, objective, model, batches = begun(lr=0.1)
    run_epoch(optimizer, objective, model, batches)
    resumed = CMALight(model.parameters(), lr=0.1)
    resumed.load_state_dict(optimizer.state_dict())
    with pytest.raises(RuntimeError, match="left after 32 of 100 samples"):
        run_epoch(resumed, Objective(model, MSE, batches), model, batches[:2])


@pytest.mark.parametrize("make", [CMALight, IG])
def test_leaving_early_is_noticed_by_the_epoch_before_where_the_objective_does_not_count(make):
    """A plain callable, which may return a loss with its graph: torch warns of numbers that are taken from one."""
    model, batches, _ = small_problem()
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    optimizer = make(model.parameters(), lr=0.1)

    def objective():
        return MSE(model(x), y)

    assert run_epoch(optimizer, objective, model, batches).outcome.keeps
    with pytest.raises(RuntimeError, match="left after 32 of 100 samples"):
        run_epoch(optimizer, objective, model, batches[:2])


def test_class_weights_do_not_make_a_whole_epoch_look_like_a_part():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.randn(60, 4)
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([2.0, 5.0]))
    batches = split(x, (x.sum(1) > 0).long(), 20)
    optimizer = CMALight(model.parameters(), lr=0.1)
    report = run_epoch(optimizer, Objective(model, loss_fn, batches), model, batches, loss_fn=loss_fn)
    assert report.outcome is Outcome.ACCEPTED


def test_a_summed_loss_is_noticed():
    optimizer, objective, model, batches = begun(lr=1e-6)
    with pytest.warns(UserWarning, match="sum of the batch's losses"), optimizer.epoch(objective) as epoch:
        for x, y in batches:
            optimizer.zero_grad()
            epoch.observe(nn.MSELoss(reduction="sum")(model(x), y), len(y))
            backward(model, (x, y))
            optimizer.step()


def test_another_objective_is_refused_until_a_restart():
    optimizer, objective, model, batches = begun(lr=0.1)
    run_epoch(optimizer, objective, model, batches)
    assert run_epoch(optimizer, Objective(model, MSE, batches), model, batches)  # made again from the same parts
    other = Objective(model, nn.L1Loss(), batches)
    with pytest.raises(RuntimeError, match="another objective"):
        optimizer.epoch(other)
    optimizer.restart(other)
    assert run_epoch(optimizer, other, model, batches, loss_fn=nn.L1Loss()).evaluations >= 1


@pytest.mark.parametrize("make", [CMALight, CMA])
def test_epochs_that_move_nothing_are_warned_about(make):
    optimizer, objective, model, batches = begun(make, lr=1e9)
    with pytest.warns(UserWarning, match="training has stalled"):
        for _ in range(30):
            run_epoch(optimizer, objective, model, batches)
