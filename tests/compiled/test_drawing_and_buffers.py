"""Compiled steps of models that draw random numbers or change buffers: dropout, BatchNorm and their like."""

import copy
import shutil

import pytest
import torch
from torch import nn

from cmalight import CMALight, Controlled, fit
from cmalight.compiled.layout import CannotCompile
from cmalight.compiled.native.operations import is_known
from cmalight.compiled.recorded import draws
from cmalight.compiled.recorded.draws import Drawn
from cmalight.compiled.recorded.recording import record
from tests.training.common import MSE, data, needs_compiler

pytestmark = needs_compiler


def network(*middle, dtype=torch.float64):
    """Without a first bias: before BatchNorm its gradient is nothing but rounding, which Adam makes large."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=False), *copy.deepcopy(middle), nn.Linear(6, 1)).to(dtype)


class States:
    """A callback: that of torch's generator after every epoch."""

    def __init__(self):
        self.seen = []

    def on_epoch_end(self, record):
        self.seen.append(torch.get_rng_state())


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def light(model):
    return CMALight(model.parameters(), lr=1.0)


def controlled(model):
    return Controlled(torch.optim.Adam(model.parameters()), tolerance=0.01)


def trained(model, optimizer, engine, *, pair=None, **options):
    """64 samples are six batches of 10 and one of 4."""
    states = States()
    options = {"max_epochs": 8, "batch_size": 10, "progress": False, "callbacks": [states], **options}
    pair = data(64) if pair is None else pair
    result = fit(model, MSE, pair, optimizer=optimizer(model), engine=engine, **options)
    return model, result, states.seen


def assert_same(eager, compiled, tolerance=1e-11):
    (first, expected, drawn), (second, result, drawn_too) = eager, compiled
    assert (expected.engine, result.engine) == ("eager", "compiled")
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, rtol=tolerance, atol=tolerance)
    assert [r.outcome for r in result.history] == [r.outcome for r in expected.history]
    losses = [r.f_tilde for r in expected.history]
    assert [r.f_tilde for r in result.history] == pytest.approx(losses, rel=tolerance)
    assert all(map(torch.equal, drawn, drawn_too))


class Averaging(nn.Module):
    """Adds the mean of the batches before: what a batch gives depends on a buffer that the last one changed."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        out = x + self.mean
        if self.training:
            self.mean.mul_(0.5).add_(x.detach().mean(0), alpha=0.5)
        return out


class Noise(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x) * torch.rand(6, dtype=x.dtype)


MODELS = {
    "dropout": (nn.Dropout(0.1), nn.Tanh(), nn.Dropout(0.5)),
    "alpha dropout": (nn.SELU(), nn.AlphaDropout(0.2)),
    "batch norm": (nn.BatchNorm1d(6), nn.Tanh()),
    "plain averages": (nn.BatchNorm1d(6, momentum=None, affine=False), nn.Tanh()),
    "no averages": (nn.BatchNorm1d(6, track_running_stats=False), nn.Tanh()),
    "averaging": (Averaging(), nn.Tanh()),
    "noise": (Noise(), nn.Tanh()),
}


@pytest.mark.parametrize("name", MODELS)
def test_epochs_are_the_eager_ones_with_the_same_random_numbers_and_buffers(name, monkeypatch):
    monkeypatch.setattr("cmalight.compiled.traced.loops.compiled", None)  # all of these are written
    eager, compiled = (trained(network(*MODELS[name]), light, engine) for engine in ("eager", "compiled"))
    assert_same(eager, compiled)
    assert (not torch.equal(*eager[2][:2])) == (name in ("dropout", "alpha dropout", "noise"))


BOTH = nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2)


@pytest.mark.parametrize("optimizer", [sgd, adam, light, controlled, lambda _: "auto"])
def test_every_optimizer_takes_the_eager_steps_and_undoes_what_it_undoes(optimizer, monkeypatch):
    monkeypatch.setattr(draws, "_BYTES", 1500)  # the numbers of three batches in a call
    eager, compiled = (
        trained(network(*BOTH), optimizer, engine, max_epochs=12, measure_train_loss=True)
        for engine in ("eager", "compiled")
    )
    assert_same(eager, compiled)
    if optimizer is light:
        assert {"rejected_early", "accepted"} <= {record.outcome for record in compiled[1].history}


def test_single_precision_agrees_to_its_rounding():
    pair = tuple(t.float() for t in data(64))
    runs = [trained(network(*BOTH, dtype=torch.float32), adam, e, pair=pair) for e in ("eager", "compiled")]
    assert_same(*runs, tolerance=1e-4)


def test_a_run_goes_on_from_a_checkpoint_in_either_engine(tmp_path):
    whole = trained(network(*BOTH), light, "eager")
    trained(network(*BOTH), light, "compiled", max_epochs=4, checkpoint=tmp_path / "first.pt")
    shutil.copy(tmp_path / "first.pt", tmp_path / "second.pt")
    for name, engine in (("first", "compiled"), ("second", "eager")):
        model, result, _ = trained(network(*BOTH), light, engine, checkpoint=tmp_path / f"{name}.pt")
        assert result.engine == engine
        for key, value in whole[0].state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value, rtol=1e-11, atol=1e-11)


def test_several_starts_have_buffers_of_their_own():
    runs = [trained(network(*MODELS["batch norm"]), light, e, starts=3) for e in ("eager", "compiled")]
    assert runs[1][1].engine == "compiled"
    for one, other in zip(*(result.starts for _, result, _ in runs), strict=True):
        for name, value in one.weights.items():
            torch.testing.assert_close(other.weights[name], value, rtol=1e-11, atol=1e-11)


def test_several_starts_that_draw_are_refused():
    with pytest.raises(ValueError, match="of several starts one draws after the other"):
        trained(network(nn.Dropout(0.5)), light, "compiled", starts=2)


class OwnGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x):
        return x * torch.rand(6, dtype=x.dtype, generator=self.generator)


class Replacing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return x


class OfValues(nn.Module):
    def forward(self, x):
        return x * torch.bernoulli(torch.sigmoid(x.detach()))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (OwnGenerator(), "another generator than torch's own"),
        (Replacing(), "another tensor in the place of the buffer 1.seen"),
        (OfValues(), "the random numbers of bernoulli cannot be drawn before"),
    ],
)
def test_what_else_a_forward_pass_does_is_refused_with_the_reason(layer, reason):
    with pytest.raises(ValueError, match=reason):
        trained(network(layer), light, "compiled")


def test_numbers_are_drawn_as_torch_draws_them_one_layer_and_batch_after_the_other():
    shapes, chances = ((16, 6), (16, 4)), (0.9, 0.3)

    def step(*tensors):
        return [torch.empty_like(t).bernoulli_(p) for t, p in zip(tensors, chances, strict=True)]

    recording = record(step, [torch.zeros(shape) for shape in shapes], is_known=is_known)
    drawn = Drawn(list(recording.draws.values()), torch.float32, most=5)
    torch.manual_seed(3)
    expected = [torch.empty(shape).bernoulli_(p) for _ in range(3) for shape, p in zip(shapes, chances, strict=True)]
    after = torch.get_rng_state()
    for fill in (drawn.fill, drawn._fill_one_by_one):
        torch.manual_seed(3)
        fill(3)
        assert torch.equal(torch.get_rng_state(), after)
        assert all(map(torch.equal, expected, [place for row in drawn.rows[:3] for place in drawn.places(row)]))


def test_an_operation_that_draws_otherwise_when_taken_apart_is_refused():
    with pytest.raises(CannotCompile, match="native_dropout"):
        record(lambda x: [torch.native_dropout(x, 0.5, True)[0]], [torch.ones(3, 4)], is_known=is_known)
