"""Faults that were found from outside, one test each."""

import copy
import inspect
import logging
import math

import pytest
import torch
from torch import nn

from cmalight import SOAP, Auto, Certified, CMALight, Controlled, Objective, Outcome
from cmalight.optim.observed import LossList
from tests.helpers import run_epoch
from tests.optim.plain_loop import (
    MSE,
    adam,
    assert_same_bits,
    bits,
    controlled,
    data,
    network,
    short_windows,
    take_steps,
)


class Remembers(torch.optim.SGD):
    """Keeps state in private attributes."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        self._mean, self._norms = torch.zeros(()), []

    def step(self, closure=None):
        norm = sum(p.grad.norm() for group in self.param_groups for p in group["params"])
        self._mean = 0.9 * self._mean + 0.1 * norm
        self._norms.append(float(norm))
        return super().step(closure)


pytorch_optimizer = pytest.importorskip("pytorch_optimizer")
pytestmark = pytest.mark.filterwarnings("ignore:Controlled has no schedule")


def contents(value):
    """What an optimizer keeps, as values that compare bit for bit; what the user set and logs show is left out."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.detach().reshape(-1).tolist()
    if isinstance(value, dict):
        return {key: contents(part) for key, part in value.items() if key not in ("params", "lr", "scheduled_lr")}
    if isinstance(value, list | tuple):
        return [contents(part) for part in value]
    return value


NAMES = ("Prodigy", "DAdaptAdam", "ASGD", "MADGRAD", "SPAM", "StableSPAM")
OTHERS = [getattr(pytorch_optimizer, name) for name in NAMES]


@pytest.mark.parametrize("make", [*OTHERS, Remembers])
def test_an_undone_batch_leaves_nothing_behind_in_any_place_where_a_base_keeps_state(make):
    """Tensors in groups, keys of `state` that are no parameters, and attributes."""
    model, batches = network(), data(order="fixed")
    base = make(model.parameters(), lr=1e-3)
    optimizer = controlled(model, base=base)

    def kept():
        attributes = {k: v for k, v in vars(base).items() if isinstance(v, int | float) or k in ("_mean", "_norms")}
        return contents([base.param_groups, list(base.state.values()), attributes])

    take_steps(optimizer, model, batches, 4)
    weights, state = bits(model), copy.deepcopy(kept())
    take_steps(optimizer, model, batches, 4)  # confirms them
    assert kept() != state
    take_steps(optimizer, model, batches, 4, spoil={1: math.nan})
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert_same_bits(bits(model), weights)
    assert kept() == state
    take_steps(optimizer, model, batches, 8)
    assert optimizer.report.outcome.keeps


@pytest.mark.parametrize("name", ["MADGRAD", "SPAM"])
def test_a_base_with_other_keys_in_its_state_resumes_bit_for_bit(name):
    model, twin, batches = network(), network(), data(order="fixed")
    make = getattr(pytorch_optimizer, name)
    optimizer, resumed = (controlled(net, base=make(net.parameters(), lr=1e-3)) for net in (model, twin))
    take_steps(optimizer, model, batches, 6)
    twin.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for net, one in ((model, optimizer), (twin, resumed)):
        take_steps(one, net, batches, 8, spoil={4: math.nan})
    assert str(resumed.report) == str(optimizer.report)
    assert optimizer.report.outcome is Outcome.DIVERGED
    assert_same_bits(bits(twin), bits(model))


def of_closures(name):
    """A schedule-free optimizer."""
    return lambda model: getattr(pytest.importorskip("schedulefree"), name)(model.parameters(), lr=0.1)


REFUSED = {
    "LBFGS": (lambda model: torch.optim.LBFGS(model.parameters()), r"LBFGS: its step\(\) needs a closure"),
    "CMALight": (lambda model: CMALight(model.parameters()), "judges its own steps"),
    "maximize": (lambda model: torch.optim.SGD(model.parameters(), lr=0.1, maximize=True), "negate the loss"),
    "no lr": (lambda model: torch.optim.SGD([{"params": model.parameters(), "lr": None}], lr=0.1), "it has none"),
    "a state of its own": (
        lambda model: pytorch_optimizer.Lookahead(adam(model)),
        "cannot watch Lookahead: it wraps Adam, whose state an undo would not",
    ),
    "schedule-free AdamW": (of_closures("AdamWScheduleFreeClosure"), r"step\(\) needs a closure"),
    "schedule-free SGD": (of_closures("SGDScheduleFreeClosure"), r"step\(\) needs a closure"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_watched_is_refused(name):
    (make, message), model = REFUSED[name], network()
    with pytest.raises(ValueError, match=message):
        Controlled(make(model), model)


@pytest.mark.parametrize("seed", range(80))
def test_cmalight_moves_with_one_batch_per_epoch_and_weight_decay(seed):
    """f̃ and f(w⁰) are one number there, summed in two ways, and the last bit must not decide."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(50, 6, generator=generator)
    batch = [(x, x.sum(1, keepdim=True).sin())]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer, objective = CMALight(model.parameters(), lr=0.01, weight_decay=1e-3), Objective(model, MSE, batch)
    assert run_epoch(optimizer, objective, model, batch).outcome.keeps


@pytest.mark.parametrize(
    ("make", "spoilt"),
    [
        (controlled, lambda model: model[0].weight),
        (controlled, lambda model: model[1].running_mean),
        (lambda model: Certified(adam(model), Objective(model, MSE, data()), total_steps=100), lambda m: m[0].weight),
    ],
    ids=["Controlled", "Controlled, a buffer", "Certified"],
)
def test_restart_refuses_what_is_not_finite(make, spoilt):
    model, batches = network(norm=True), data()
    optimizer = make(model)
    take_steps(optimizer, model, batches, 2)
    good = bits(model)
    spoilt(model).data[0] = math.nan
    with pytest.raises(ValueError, match="not finite: load finite ones first"):
        optimizer.restart()
    model.load_state_dict(good)
    optimizer.restart()
    assert optimizer.scale == 1.0


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_soap_takes_a_learning_rate_of_one_element_in_any_shape(shape):
    """Matrices and vectors; alone, and under the watchdog."""
    ends = []
    for lr in (0.01, torch.full(shape, 0.01, dtype=torch.float64)):
        for wrap in (lambda base, _: base, lambda base, model: Controlled(base, model)):
            model = network(dtype=torch.float64)
            optimizer = wrap(SOAP(model.parameters(), lr=lr, weight_decay=0.1), model)
            take_steps(optimizer, model, data(dtype=torch.float64, order="fixed"), 6)
            ends.append(list(model.parameters()))
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), [("SAM", {"base_optimizer": torch.optim.SGD}), ("BSAM", {"num_data": 9})])
def test_sam_is_refused_at_the_first_step(name, options):
    """The signature of its step() does not tell that it needs a closure."""
    model = network()
    optimizer = Controlled(getattr(pytorch_optimizer, name)(model.parameters(), lr=0.1, **options), model)
    with pytest.raises(ValueError, match=rf"cannot watch {name}: its step\(\) needs a closure"):
        take_steps(optimizer, model, data(), 1)


def test_parameters_in_no_watched_optimizer_are_warned_about_once():
    model, batches = network(), data()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    with pytest.warns(UserWarning, match="2 of 4 trainable parameters of the model are in no group") as told:
        optimizer = short_windows(Controlled(torch.optim.Muon(matrices, lr=1e-3), model, total_steps=100))
        take_steps(optimizer, model, batches, 12)
    assert len(told) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda model, copied: Controlled(adam(model), objective=copied),
        lambda model, copied: Controlled(adam(model), model, objective=copied),
        lambda model, copied: Controlled(adam(model), copied.model),
        lambda model, copied: Certified(adam(model), copied),
        lambda model, copied: CMALight(model.parameters()).epoch(copied).__enter__(),
    ],
    ids=["objective", "both", "model", "Certified", "CMALight"],
)
def test_a_copy_of_the_model_is_refused(use):
    model = network()
    with pytest.raises(ValueError, match="has none of the parameters of the model"):
        use(model, Objective(copy.deepcopy(model), MSE, data()))


class Broken(nn.Linear):
    """Its forward pass asks for a layer that is not there."""

    def forward(self, x):
        return self.head(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda model, objective: Auto(model, objective=objective, total_steps=9),
        lambda model, objective: Certified(SOAP(model.parameters()), objective, total_steps=9),
    ],
    ids=["Auto", "Certified"],
)
def test_an_attribute_error_of_the_user_appears_as_itself(make):
    model, batches = Broken(6, 1), data()
    optimizer = make(model, Objective(model, MSE, batches))
    x, y = next(iter(batches))
    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'head'"):
        optimizer.step(lambda: MSE(model(x), y))
    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'head'"):
        optimizer.objective()


def test_signatures_are_those_of_the_contract():
    watched = ["objective", "total_steps", "progress"]
    of_soap = ["lr", "betas", "eps", "weight_decay", "max_side"]
    assert list(inspect.signature(Controlled).parameters) == ["base", "model", *watched, "snapshot_device"]
    assert list(inspect.signature(Auto).parameters) == ["model_or_params", *watched, *of_soap, "snapshot_device"]
    assert list(inspect.signature(Certified).parameters)[:2] == ["base", "objective"]


def test_auto_has_no_public_names_beside_those_of_the_contract():
    names = {name for name in dir(Auto(network())) if not name.startswith("_")}
    optimizer = {name for name in dir(adam(network())) if not name.startswith("_")}
    contract = {"base", "objective", "total_steps", "progress", "scale", "last_lr", "steps", "report"}
    assert names - optimizer == contract | {"observe", "advance", "on_report", "restart"}


def test_undone_windows_are_logged_and_kept_ones_are_not(caplog):
    caplog.set_level(logging.INFO, logger="cmalight")
    model, batches = network(), data()
    optimizer = controlled(model, batches)
    take_steps(optimizer, model, batches, 8)
    assert caplog.records == []
    take_steps(optimizer, model, batches, 4, spoil={1: math.nan})
    assert [(r.name, r.levelno, r.message) for r in caplog.records] == [
        ("cmalight", logging.INFO, str(optimizer.report))
    ]


def test_several_listeners_get_every_report_until_they_are_removed():
    model, batches = network(), data()
    optimizer, first, second = controlled(model), [], []
    handle = optimizer.on_report(first.append)
    optimizer.on_report(second.append)
    take_steps(optimizer, model, batches, 4)
    handle.remove()
    take_steps(optimizer, model, batches, 4)
    assert len(first) == 1
    assert len(second) == 2
    assert second[1] is optimizer.report


@pytest.mark.parametrize("missing", [1, 15])
def test_an_epoch_that_misses_less_than_a_batch_is_whole_as_with_drop_last(missing):
    x = torch.randn(64 + missing, 1)
    model = nn.Linear(1, 1)
    optimizer, objective = CMALight(model.parameters(), lr=1e-3), Objective(model, MSE, [(x, x)])
    report = run_epoch(optimizer, objective, model, list(zip(x[:64].split(16), x[:64].split(16), strict=True)))
    assert math.isfinite(report.f_tilde)


def test_a_window_with_a_skipped_step_is_resumed_with_it():
    losses = LossList()
    for loss, skipped in ((1.0, 0.0), (2.0, 1.0), (3.0, 0.0)):
        losses.observe(loss)
        losses.take(torch.tensor(skipped))
    saved = losses.state_dict()
    again = LossList(saved["losses"], saved["skipped"])
    assert (len(again), again.values(), again.state_dict()) == (3, [1.0, 3.0], saved)


def test_a_probe_whose_targets_are_all_ignored_is_none():
    model, loss_fn = nn.Linear(3, 2), nn.CrossEntropyLoss(ignore_index=-1)
    x, y = torch.randn(400, 3), torch.full((400,), -1)
    y[-1] = 0
    objective = Objective(model, loss_fn, [(x[i : i + 1], y[i : i + 1]) for i in range(400)])
    assert math.isnan(objective.probe())
    assert math.isfinite(objective())


def test_a_generator_of_the_sampler_in_a_batch_sampler_is_left_as_it_was():
    x, generator = torch.randn(64, 3), torch.Generator().manual_seed(0)
    sampler = torch.utils.data.RandomSampler(x, generator=generator)
    batch_sampler = torch.utils.data.BatchSampler(sampler, 16, drop_last=False)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1]), batch_sampler=batch_sampler)
    before = generator.get_state()
    Objective(nn.Linear(3, 1), MSE, loader)()
    assert torch.equal(generator.get_state(), before)


def test_a_step_of_certified_whose_lr_is_zero_counts_if_it_has_a_gradient():
    model, batches = network(), data()
    optimizer = Certified(adam(model), Objective(model, MSE, batches), total_steps=100)
    optimizer.param_groups[0]["lr"] = 0.0
    take_steps(optimizer, model, batches, len(batches))
    assert optimizer.report is not None
