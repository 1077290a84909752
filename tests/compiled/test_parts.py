"""The parts of the compiled engine, each by itself and without a compiler."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMALight, TensorBatches, fit
from cmalight.compiled.blocks import by_groups
from cmalight.compiled.engine import select
from cmalight.compiled.engine.checks import check_unchanged
from cmalight.compiled.layout import CannotCompile, Layout
from cmalight.compiled.order import order_of_epoch
from cmalight.compiled.pace import Pace
from cmalight.compiled.steps import GradientStep, register, step_rule
from cmalight.compiled.traced import products
from tests.training.common import MSE, data, model

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {}),
    "adam, decay": (torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.8, 0.9)}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    "adadelta": (torch.optim.Adadelta, {"weight_decay": 0.1, "rho": 0.8}),
    "cmalight": (CMALight, {"lr": 0.1, "weight_decay": 0.1}),
}


def grouped(kind, options):
    """Two groups, the second with a larger step."""
    network = model()
    groups = [{"params": network[0].parameters()}, {"params": network[3].parameters(), "lr": 0.3}]
    return network, kind(groups, **options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rule_takes_the_steps_of_its_optimizer_and_leaves_its_state(name):
    (network, optimizer), (other, reference) = (grouped(*OPTIMIZERS[name]) for _ in range(2))
    layout, rule = Layout.of(network, optimizer), step_rule(optimizer)
    generator = torch.Generator().manual_seed(0)
    lr = torch.tensor([group["lr"] for group in optimizer.param_groups], dtype=torch.float64)
    for count in (1, 3):  # from a fresh state, and from one that was put away in between
        weights, state = layout.flat(), rule.state(optimizer, layout)
        for _ in range(count):
            gradient = torch.randn(len(weights), generator=generator, dtype=torch.float64)
            weights, state = by_groups(rule, layout.groups, weights, gradient, state, lr)
            for p, part in zip(other.parameters(), layout.parts(gradient), strict=True):
                p.grad = part.clone()
            reference.step()
        layout.put(weights)
        rule.put_state(state, optimizer, layout)
    for p, q in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-13, atol=1e-13)
        assert optimizer.state[p].keys() == reference.state[q].keys()
        for key, value in reference.state[q].items():
            torch.testing.assert_close(optimizer.state[p][key], value, rtol=1e-13, atol=1e-13)


def test_an_optimizer_of_ones_own_can_register_a_rule():
    class Halved(torch.optim.SGD):
        pass

    optimizer = Halved(model().parameters(), lr=0.1)
    with pytest.raises(CannotCompile, match="Halved are not compiled"):
        step_rule(optimizer)
    register(Halved, lambda _: GradientStep((0.0,), (0.0,), scales_short_batches=False, moves=(True,)))
    assert isinstance(step_rule(optimizer), GradientStep)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dampening": 0.5, "momentum": 0.9}, "dampening"),
        ({"maximize": True}, "maximize"),
        ({"lr": torch.tensor(0.1)}, "lr is a Tensor"),
    ],
)
def test_options_without_a_rule_have_a_reason(options, reason):
    with pytest.raises(CannotCompile, match=reason):
        step_rule(torch.optim.SGD(model().parameters(), **{"lr": 0.1, **options}))


@pytest.mark.parametrize("samples", [64, 60, 7])
@pytest.mark.parametrize("order", ["fixed", "reshuffle"])
def test_the_order_is_that_of_the_eager_batches(samples, order):
    x = torch.arange(samples)
    feed = TensorBatches(x, x, batch_size=10, order=order, seed=3)
    feed.set_epoch(2)
    batches = [batch for batch, _ in feed]
    planned = order_of_epoch(feed, 2)
    assert [row.tolist() for part in planned.rows for row in part] == [batch.tolist() for batch in batches]
    assert planned.batches == len(batches)
    seen = [planned.samples_after(number + 1) for number in range(len(batches))]
    assert seen == torch.tensor([len(batch) for batch in batches]).cumsum(0).tolist()
    assert planned.nominal * planned.shares[-1] == pytest.approx(len(batches[-1]))


@pytest.mark.parametrize(("rows", "inner", "columns"), [(20, 8, 5), (20, 8, 1), (20, 1, 30), (80, 80, 80), (20, 8, 30)])
def test_products_taken_another_way_are_the_same(rows, inner, columns):
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(3, rows, inner, generator=generator, dtype=torch.float64)
    right = torch.randn(3, inner, columns, generator=generator, dtype=torch.float64)
    bias = torch.randn(columns, generator=generator, dtype=torch.float64)
    rules = products.decompositions()
    single, together = (
        rules[torch.ops.aten.mm.default](left[0], right[0]),
        rules[torch.ops.aten.bmm.default](left, right),
    )
    if single is not NotImplemented:
        torch.testing.assert_close(single, left[0] @ right[0])
    if together is not NotImplemented:
        torch.testing.assert_close(together, left @ right)
    assert (together is NotImplemented) == ((rows, inner, columns) == (20, 8, 30))
    with_bias = rules[torch.ops.aten.addmm.default](bias, left[0], right[0])
    torch.testing.assert_close(with_bias, torch.addmm(bias, left[0], right[0]))


def test_a_call_is_as_long_as_the_time_that_is_left_allows():
    pace = Pace()
    pace.saw(100, 0.1)
    assert pace.batches() == 100
    assert pace.batches(0.01) == 10
    assert pace.batches(-1.0) == 1


def test_a_short_run_is_not_worth_compiling_and_a_long_one_is():
    long = select.Work(epochs=100, seconds=math.inf, batches_an_epoch=100)
    assert not select.might_pay(model(), select.Work(epochs=3, seconds=math.inf, batches_an_epoch=10), 0.5)
    assert not select.might_pay(model(), select.Work(epochs=math.inf, seconds=0.4, batches_an_epoch=10), 0.5)
    assert select.might_pay(model(), long, 0.5)
    assert select.compile_seconds(model(), written=True) < select.compile_seconds(model(), written=False)


def test_more_is_predicted_to_be_saved_of_an_optimizer_that_keeps_averages(monkeypatch):
    monkeypatch.setattr(select, "_step_seconds", lambda *_: 1e-3)
    network, feed = model(), TensorBatches(*data(64), batch_size=10)
    work = select.Work(epochs=100, seconds=math.inf, batches_an_epoch=6)
    plain, adaptive = (
        select.predicted_saving(network, MSE, kind(network.parameters(), lr=1e-3), feed, work)
        for kind in (torch.optim.SGD, torch.optim.Adam)
    )
    assert plain < adaptive < 2 * plain


def test_the_predicted_saving_is_a_part_of_the_time_an_eager_run_would_take():
    network, feed = model(), TensorBatches(*data(), batch_size=10)
    optimizer = CMALight(network.parameters())
    work = select.Work(epochs=math.inf, seconds=1000.0, batches_an_epoch=6)
    assert 0 < select.predicted_saving(network, MSE, optimizer, feed, work) <= 1000.0


def test_batch_norm_which_takes_no_single_sample_has_a_predicted_saving_too():
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double()
    work = select.Work(epochs=100, seconds=math.inf, batches_an_epoch=6)
    feed, optimizer = TensorBatches(*data(), batch_size=10), CMALight(network.parameters())
    assert select.predicted_saving(network, MSE, optimizer, feed, work) > 0.0


def test_auto_is_eager_for_a_short_run_and_says_nothing(caplog):
    result = fit(model(), MSE, data(), batch_size=10, max_epochs=2, progress=False)
    assert result.engine == "eager"
    assert not caplog.records


class WithHook(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.register_forward_hook(lambda *_: None)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 1), nn.Linear(4, 1)
        self.double()

    def forward(self, x):
        return self.used(x)


def scheduled(network):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return optimizer


REFUSED = {
    "hook": (lambda: WithHook(nn.Linear(4, 1)), None, None, "hook"),
    "unused": (Unused, None, None, "unused.weight gets no gradient"),
    "optimizer": (model, lambda network: torch.optim.RMSprop(network.parameters()), None, "RMSprop are not compiled"),
    "scheduler": (model, scheduled, None, "schedulers"),
    "loader": (model, None, lambda: DataLoader(TensorDataset(*data()), batch_size=10), "DataLoader"),
    "half": (lambda: model().bfloat16(), None, None, "bfloat16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_refused_with_the_reason(name):
    make_model, make_optimizer, make_data, reason = REFUSED[name]
    network = make_model() if name == "half" else make_model().double()
    optimizer = "cmalight" if make_optimizer is None else make_optimizer(network)
    pair = data() if make_data is None else make_data()
    with pytest.raises(ValueError, match=reason):
        fit(network, MSE, pair, optimizer=optimizer, batch_size=10, max_epochs=1, progress=False, engine="compiled")


def assign_new_weights(network, _):
    network.load_state_dict({name: t.clone() for name, t in network.state_dict().items()}, assign=True)


def move_a_parameter(_, optimizer):
    first, second = (group["params"] for group in optimizer.param_groups)
    second.insert(0, first.pop())


def add_a_scheduler(_, optimizer):
    torch.optim.lr_scheduler.StepLR(optimizer, 1)


CHANGES = {
    "frozen": (lambda network, _: network[0].requires_grad_(False), "not those it began with"),
    "other weights": (assign_new_weights, "not those it began with"),
    "other groups": (move_a_parameter, "not those it began with"),
    "hook": (lambda network, _: network[0].register_forward_hook(lambda *_: None), "Linear has a hook"),
    "scheduler": (add_a_scheduler, "schedulers"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_callback_changed_so_that_the_compiled_step_is_another_is_seen_before_the_next_epoch(name):
    change, reason = CHANGES[name]
    network, optimizer = grouped(*OPTIMIZERS["sgd"])
    layout = Layout.of(network, optimizer)
    check_unchanged(network, optimizer, layout)
    change(network, optimizer)
    with pytest.raises(CannotCompile, match=reason):
        check_unchanged(network, optimizer, layout)


def test_ignored_targets_are_refused_because_batches_then_count_differently():
    network, loss = nn.Linear(4, 2).double(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]).double())
    targets = (data()[1][:, 0] > 0.5).long()
    with pytest.raises(ValueError, match="count differently"):
        fit(network, loss, (data()[0], targets), max_epochs=1, progress=False, engine="compiled")


def test_without_a_compiler_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match="which is not found: install it"):
        fit(model(), MSE, data(), batch_size=10, max_epochs=1, progress=False, engine="compiled")


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="expected one of auto, eager, compiled"):
        fit(model(), MSE, data(), max_epochs=1, engine="native")
