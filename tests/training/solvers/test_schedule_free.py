"""fit switches optimizers that train at one point and are judged at another."""

import pytest
import schedulefree
import torch
from torch import nn

from cmalight import Controlled, Objective, fit
from cmalight.evaluation.batches import TensorBatches
from tests.helpers import MSE, copied_state, network, same_state, table
from tests.training.checkpoints.test_checkpoint import StopAfter

DATA = table(samples=120)
MAKERS = {
    "alone": lambda params: schedulefree.AdamWScheduleFree(params, lr=0.05),
    "controlled": lambda params: Controlled(schedulefree.AdamWScheduleFree(params, lr=0.05)),
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def fitted(make, epochs: int, model: nn.Module | None = None, **more):
    model = network() if model is None else model
    result = fit(
        model,
        MSE,
        DATA,
        optimizer=make(model.parameters()),
        batch_size=20,
        order="fixed",
        max_epochs=epochs,
        progress=False,
        **more,
    )
    return model, result


def test_a_run_is_that_of_a_loop_that_switches_around_every_epoch():
    model, _ = fitted(MAKERS["alone"], 5)
    twin = network()
    optimizer = MAKERS["alone"](twin.parameters())
    batches = TensorBatches(*DATA, batch_size=20, order="fixed")
    for _ in range(5):
        optimizer.train()
        for x, y in batches:
            optimizer.zero_grad()
            MSE(twin(x), y).backward()
            optimizer.step()
        optimizer.eval()
    assert same_state(copied_state(model), copied_state(twin))


@each
def test_everything_is_measured_where_the_optimizer_is_judged(make):
    model, result = fitted(make, 5, measure_train_loss=True, validation=DATA)
    measured = Objective(model, MSE, TensorBatches(*DATA, batch_size=20, order="fixed"))()
    assert result.optimizer.param_groups[0]["train_mode"] is False
    assert result.history[-1].train_loss == pytest.approx(measured, rel=1e-12)
    assert result.history[-1].validation_loss == pytest.approx(measured, rel=1e-12)


@each
def test_measuring_changes_nothing(make):
    assert same_state(
        copied_state(fitted(make, 5)[0]), copied_state(fitted(make, 5, measure_train_loss=True, validation=DATA)[0])
    )


@each
def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(make, tmp_path):
    whole, _ = fitted(make, 8)
    fitted(make, 8, checkpoint=tmp_path / "run.pt", callbacks=[StopAfter(2)])
    parts, _ = fitted(make, 8, checkpoint=tmp_path / "run.pt")
    assert same_state(copied_state(whole), copied_state(parts))


@each
def test_the_best_weights_are_those_that_were_measured(make):
    model, result = fitted(make, 12, restore_best=True)
    measured = Objective(model, MSE, TensorBatches(*DATA, batch_size=20, order="fixed"))()
    assert measured == pytest.approx(min(record.train_loss for record in result.history), rel=1e-12)


def test_an_epoch_that_breaks_off_ends_where_the_optimizer_is_judged():
    calls = iter(range(100))

    def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if next(calls) == 9:
            raise RuntimeError("broken")
        return MSE(output, target)

    model = network()
    optimizer = MAKERS["alone"](model.parameters())
    with pytest.raises(RuntimeError, match="broken"):
        fit(model, loss_fn, DATA, optimizer=optimizer, batch_size=20, max_epochs=5, progress=False)
    assert optimizer.param_groups[0]["train_mode"] is False
