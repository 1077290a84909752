"""Compiled epochs never train another thing than eager ones: what cannot be followed is refused, or noticed."""

import copy
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from cmalight import fit
from cmalight.compiled.engine import select
from cmalight.compiled.trust.canary import Schedule
from cmalight.evaluation import larger_batches
from tests.helpers import same_state
from tests.training.common import MSE, data, needs_compiler

pytestmark = needs_compiler
ENGINES = "eager", "compiled"


def words(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 7, (64, 4), generator=generator), torch.randint(0, 3, (64,), generator=generator)


@pytest.mark.parametrize("wrong", ["row", "far row", "class"])
def test_an_index_out_of_range_is_an_error_as_in_eager_epochs(wrong, monkeypatch):
    monkeypatch.setattr(larger_batches, "_SAMPLES", 20)  # or the last row would be among those that are recorded
    x, y = words()
    if wrong == "class":
        y[-1] = 7
    else:
        x[-1, 1] = 9 if wrong == "row" else 10**9
    for engine in ENGINES:
        network = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 3))
        with pytest.raises(IndexError, match="out of"):
            fit(network, nn.CrossEntropyLoss(), (x, y), optimizer="adam", batch_size=10, max_epochs=1,
                progress=False, engine=engine)  # fmt: skip


class Own(nn.Module):
    """Two layers, and a forward pass of its own."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.own = nn.Linear(4, 6), nn.Linear(6, 1), forward
        self.register_buffer("seen", torch.zeros(6))
        self.average = torch.zeros(6).double()
        self.double()

    def forward(self, x):
        return self.own(self, x, torch.tanh(self.first(x)))


def by_numpy(network, x, hidden):
    return network.last(hidden) + torch.from_numpy(np.sin(x.numpy()[:, :1]))


def by_list(network, x, hidden):
    return network.last(hidden) * sum(x[:, 0].tolist())


def by_equal(network, x, hidden):
    return network.last(hidden) * (2 if torch.equal(x[0] > 0, x[1] > 0) else 1)


def by_allclose(network, x, hidden):
    return network.last(hidden) * (2 if torch.allclose(x[0], x[1], atol=1.0) else 1)


def clamping(network, x, hidden):
    with torch.no_grad():
        network.last.weight.clamp_(-0.5, 0.5)  # which it is within, to begin with
    return network.last(hidden)


def shrinking(network, x, hidden):
    network.last.weight.data = network.last.weight.data * 0.9
    return network.last(hidden)


def averaging(network, x, hidden):
    network.average.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)  # no buffer
    return network.last(hidden + network.average)


REFUSED = {
    by_numpy: "looks at the values",
    by_list: "looks at the values",
    by_equal: "looks at the values",
    by_allclose: "looks at the values",
    clamping: "changes a parameter",
    shrinking: "changes the parameter last.weight",
    averaging: "none of its buffers",
}


@pytest.fixture
def always_tried(monkeypatch):
    """ "auto" compiles whatever it can."""
    monkeypatch.setattr(select, "pays", lambda *_: True)


def trained(network, engine, loss=MSE, **options):
    options = {"optimizer": "sgd", "batch_size": 10, "max_epochs": 3, "progress": False, **options}
    return fit(network, loss, data(64), engine=engine, **options)


@pytest.mark.parametrize("forward", REFUSED)
def test_what_a_record_would_not_follow_is_refused_and_trained_eagerly(forward, always_tried):
    with pytest.raises(ValueError, match=REFUSED[forward]):
        trained(Own(forward), "compiled")
    if forward is averaging:
        return  # what is no buffer cannot be put back after a trial
    eager, chosen = Own(forward), Own(forward)
    trained(eager, "eager")
    assert trained(chosen, "auto").engine == "eager"
    assert same_state(chosen.state_dict(), eager.state_dict())


def test_parameters_and_constants_that_are_only_read_may_be_detached():
    def reading(network, x, hidden):
        return network.last(hidden) * network.last.weight.detach().abs().mean() + torch.tensor(0.5) + network.average[0]

    eager = Own(reading)
    compiled = copy.deepcopy(eager)
    trained(eager, "eager")
    assert trained(compiled, "compiled").engine == "compiled"
    torch.testing.assert_close(compiled.last.weight, eager.last.weight, rtol=1e-12, atol=1e-12)


class Annealed:
    """A loss whose factor is nowhere that is looked at, and a callback that changes it after the third epoch."""

    def __init__(self):
        self.inside = SimpleNamespace(factor=1.0)

    def __call__(self, output, target):
        return self.inside.factor * MSE(output, target)

    def on_epoch_end(self, record):
        self.inside.factor = 1.0 if record.epoch < 2 else 0.5


def plain(network, x, hidden):
    return network.last(hidden)


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("optimizer", ["cmalight", "sgd"])
def test_a_loss_that_a_callback_changes_is_noticed_before_the_next_epoch(optimizer, starts, always_tried):
    ends = []
    for engine in ("eager", "auto"):
        network, loss = Own(plain), Annealed()
        del network.average
        result = trained(
            network, engine, loss, optimizer=optimizer, max_epochs=5, callbacks=[loss], starts=starts, seed=3
        )
        ends.append((network, result))
    (eager, first), (chosen, second) = ends
    assert second.engine == "eager"
    assert "a compiled step gives a loss of" in second.engine_reason
    torch.testing.assert_close(chosen.last.weight, eager.last.weight, rtol=1e-10, atol=1e-10)
    assert [r.f_tilde for r in second.history] == pytest.approx([r.f_tilde for r in first.history], rel=1e-10)


def test_a_loss_that_changes_is_an_error_where_compiled_epochs_were_asked_for():
    loss = Annealed()
    with pytest.raises(ValueError, match="a compiled step gives a loss of"):
        trained(Own(plain), "compiled", loss, max_epochs=5, callbacks=[loss])


FACTOR = 1.0


@pytest.mark.parametrize("place", ["closure", "global", "container of the model"])
def test_numbers_that_a_callback_changes_are_followed(place, monkeypatch):
    factors = [1.0]

    def forward(network, x, hidden):
        return network.last(hidden) * network.factors["one"]

    def loss(output, target):
        return MSE(output, target) * factors[0] * FACTOR

    class Changing:
        def __init__(self, network):
            self.network = network

        def on_epoch_end(self, record):
            if place == "closure":
                factors[0] = 0.5
            elif place == "global":
                monkeypatch.setitem(globals(), "FACTOR", 0.5)
            else:
                self.network.factors["one"] = 0.5

    ends = []
    for engine in ENGINES:
        network = Own(forward)
        network.factors, factors[0] = {"one": 1.0}, 1.0
        monkeypatch.setitem(globals(), "FACTOR", 1.0)
        ends.append((network, trained(network, engine, loss, callbacks=[Changing(network)])))
    assert ends[1][1].engine == "compiled"
    torch.testing.assert_close(ends[1][0].last.weight, ends[0][0].last.weight, rtol=1e-12, atol=1e-12)


def high_byte(tensor):
    """Of the first number, without torch."""
    return ctypes.string_at(tensor.untyped_storage().data_ptr(), 8)[6]


class Reading(torch.autograd.Function):
    """Its gradient has a factor that is made of values, below torch's functions."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (1.0 + high_byte(x) / 255)


def test_what_is_read_for_the_gradient_alone_is_noticed():
    def forward(network, x, hidden):
        return network.last(Reading.apply(hidden))

    with pytest.raises(ValueError, match="a compiled step ends elsewhere"):
        trained(Own(forward), "compiled")


def test_what_is_read_from_the_weights_is_noticed():
    def forward(network, x, hidden):
        return network.last(hidden) * (1.0 + high_byte(network.last.weight) / 255)

    with pytest.raises(ValueError, match="a compiled step gives a loss of"):
        trained(Own(forward), "compiled")


def test_looks_become_rare_where_nothing_can_change_and_come_after_many_batches():
    assert [epoch for epoch in range(1, 34) if looks_of(always=False, batches=1)[epoch - 1][0]] == [2, 4, 8, 16, 32]
    assert all(looks for looks, _ in looks_of(always=True, batches=1)[1:])
    assert all(looks for looks, _ in looks_of(always=False, batches=2000)[1:])
    assert [number for number, (_, thorough) in enumerate(looks_of(always=True, batches=2000), 1) if thorough] == [
        2, 4, 8, 16, 32,
    ]  # fmt: skip


def looks_of(*, always, batches):
    schedule = Schedule(always=always)
    return [schedule.due(batches) for _ in range(33)]


def test_a_look_leaves_no_trace():
    """Dropout draws, BatchNorm counts, and a model that was looked at before every epoch is the same to the bit."""
    ends = []
    for callbacks in ([], [SimpleNamespace(on_epoch_end=lambda record: None)]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1)).double()
        trained(network, "compiled", optimizer="adam", max_epochs=6, callbacks=callbacks)
        ends.append((network.state_dict(), torch.get_rng_state()))
    assert same_state(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_fit_without_residuals_in_single_precision_is_not_taken_for_a_difference(optimizer):
    """Where the loss is a square of roundings the engines differ by as much as it is."""
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with torch.no_grad():
        y = network(x)
    callback = SimpleNamespace(on_epoch_end=lambda record: None)
    result = fit(network, nn.MSELoss(), (x, y), optimizer=optimizer, batch_size=10, max_epochs=20, progress=False,
                 engine="compiled", callbacks=[callback])  # fmt: skip
    assert (result.engine, result.epochs) == ("compiled", 20)


@pytest.mark.parametrize("kind", ["modules", "optimizers"])
def test_a_hook_on_all_modules_or_optimizers_is_refused(kind):
    if kind == "modules":
        handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    else:
        handle = register_optimizer_step_post_hook(lambda *_: None)
    with handle, pytest.raises(ValueError, match=f"hook on all {kind}"):
        trained(Own(plain), "compiled")


class Counting(nn.Module):
    """A buffer of as many bytes as the weights, which is not finite."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1, bias=False)
        self.register_buffer("farthest", torch.full((4,), torch.inf))
        self.double()

    def forward(self, x):
        self.farthest.add_(x.detach().mean())
        return self.layer(x)


def test_a_buffer_of_the_size_of_the_weights_is_none_of_the_optimizers_states():
    ends = [trained(network := Counting(), engine, optimizer="cmalight") and network for engine in ENGINES]
    torch.testing.assert_close(ends[1].layer.weight, ends[0].layer.weight, rtol=1e-12, atol=1e-12)
