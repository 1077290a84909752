"""fit(optimizer="auto"): the recommended optimizer, from any start, with checkpoints."""

import copy

import pytest
import torch
from torch import nn

from cmalight import Controlled, fit
from cmalight.models import paper_network
from cmalight.training.solvers.optimizers import make_optimizer
from tests.helpers import MSE, copied_state, network, same_state, table


def trained(epochs: int, *, lr: float = 1e-3, checkpoint=None, model: nn.Module | None = None, **more):
    model = network(seed=0) if model is None else model
    result = fit(
        model,
        MSE,
        table(samples=300),
        optimizer="auto",
        optimizer_options={"lr": lr},
        batch_size=20,
        max_epochs=epochs,
        checkpoint=checkpoint,
        progress=False,
        measure_train_loss=True,
        **more,
    )
    return model, result


def test_auto_is_a_controlled_adam():
    optimizer = make_optimizer("auto", network().parameters(), {"betas": (0.8, 0.99), "window": 50})
    assert isinstance(optimizer, Controlled)
    assert isinstance(optimizer.base, torch.optim.Adam)
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.99)
    assert optimizer.param_groups[0]["window"] == 50


def first_layer_moves(options):
    torch.manual_seed(0)
    x = torch.rand(512, 6)
    model = paper_network("10x50", 6)
    first = next(model.parameters())
    before = first.detach().clone()
    options = {"lr": 1e-3, **options}
    fit(model, MSE, (x, x[:, :1]), optimizer="auto", optimizer_options=options, batch_size=16, max_epochs=1)
    return (first.detach() - before).abs().mean().item()


def test_the_first_layer_of_a_deep_sigmoid_network_moves():
    """Its gradients are smaller than torch's eps for Adam, under which it stays at the mean of the targets."""
    assert first_layer_moves({}) > 5 * first_layer_moves({"eps": 1e-8})


def test_without_a_step_size_it_has_one():
    optimizer = make_optimizer("auto", network().parameters(), {"lr": None, "foreach": False})
    assert 0.0 < optimizer.param_groups[0]["lr"] <= 0.1
    assert optimizer.param_groups[0]["foreach"] is False


@pytest.mark.parametrize("lr", [0, -1.0, "fast", float("nan")])
def test_a_wrong_step_size_is_named(lr):
    with pytest.raises(ValueError, match="Invalid lr value"):
        make_optimizer("auto", network().parameters(), {"lr": lr})


def test_a_wrong_option_is_named():
    with pytest.raises(ValueError, match=r"Invalid optimizer_options for 'auto'.*momentum"):
        make_optimizer("auto", network().parameters(), {"momentum": 0.9})


@pytest.mark.parametrize("exponent", [-5, -3, 0, 1])
def test_the_first_step_size_does_not_matter(exponent):
    """Losses below 10⁻⁴ count as equal; at the start it is about 0.7. In 25 epochs that from 10⁻⁵ is at 3·10⁻⁴."""
    loss = trained(30)[1].history[-1].train_loss
    other = trained(30, lr=10.0**exponent)[1].history[-1].train_loss
    assert other == pytest.approx(loss, rel=0.5, abs=1e-4)


def test_it_needs_no_full_evaluation_in_a_smooth_run():
    _, result = trained(25)
    assert result.evaluations == 0
    assert result.history[-1].train_loss < 0.2 * result.history[0].train_loss


def test_a_checkpoint_knows_the_options_of_adam_inside(tmp_path):
    def run(**options):
        return fit(
            network(),
            MSE,
            table(),
            optimizer="auto",
            optimizer_options=options,
            max_epochs=2,
            progress=False,
            checkpoint=tmp_path / "run.pt",
        )

    run(betas=(0.9, 0.99))
    with pytest.raises(ValueError, match="another run: betas was"):
        run(betas=(0.5, 0.99))


class Exhausted(Exception):
    pass


class EndsAfter:
    """A run that is broken off, with its budget as it was."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, record) -> None:
        if record.epoch == self.epochs:
            raise Exhausted


def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(tmp_path):
    whole, result = trained(12)
    file = tmp_path / "run.pt"
    with pytest.raises(Exhausted):
        trained(12, checkpoint=file, checkpoint_seconds=0.0, callbacks=[EndsAfter(5)])
    parts, resumed = trained(12, checkpoint=file)
    assert same_state(copied_state(whole), copied_state(parts))
    assert [(r.lr, r.f_tilde, r.outcome) for r in result.history] == [
        (r.lr, r.f_tilde, r.outcome) for r in resumed.history
    ]


@pytest.mark.parametrize("seed", range(3))
def test_epochs_of_four_batches_do_not_strand_it(seed):
    """Within the first four the loss falls through a point that it cannot hold, and swings around for some more."""
    torch.manual_seed(seed)
    x = torch.rand(400, 10)
    y = (x.sum(1, keepdim=True) + 0.1 * torch.rand(400, 1)) / 10
    first = nn.Sequential(nn.Linear(10, 50), nn.Sigmoid(), nn.Linear(50, 1))
    losses = {}
    for solver in ("adam", "auto"):
        model = copy.deepcopy(first)
        result = fit(model, nn.MSELoss(), (x, y), optimizer=solver, max_epochs=60, measure_train_loss=True)
        losses[solver] = result.history[-1].train_loss
        refused = [record for record in result.history if record.outcome == "refused"]
        assert len(refused) < 5
    assert losses["auto"] < losses["adam"]
