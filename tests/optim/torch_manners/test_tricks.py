"""The usual tricks of a training loop around an epoch: mixed precision, clipping, accumulation, averages."""

import pytest
import torch

from cmalight import CMALight, Objective

from .cases import MSE, assert_same, batches, network


def _autocast_loss(model, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return MSE(model(x), y)


def _autocast_objective(model):
    return Objective(model, None, batches(), forward=lambda m, batch: (_autocast_loss(m, *batch), len(batch[1])))


def _autocast_epoch(optimizer, model, objective):
    with optimizer.epoch(objective) as epoch:
        for x, y in batches():
            optimizer.zero_grad()
            loss = _autocast_loss(model, x, y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
    return epoch.report


def test_bfloat16_is_evaluated_as_it_is_trained():
    """With steps that change nothing the epoch's losses are those of the evaluation, and not those of float32."""
    model = network()
    plain, objective = Objective(model, MSE, batches())(), _autocast_objective(model)
    evaluated = objective()
    report = _autocast_epoch(CMALight(model.parameters(), lr=1e-30), model, objective)
    assert report.f_tilde == pytest.approx(evaluated, rel=1e-12)
    assert abs(plain - evaluated) > 1e-6


@pytest.mark.parametrize("norm", [False, True])
def test_epochs_in_bfloat16_are_accepted_and_undone(norm):
    model = network(norm=norm)
    optimizer, objective = CMALight(model.parameters(), lr=30.0), _autocast_objective(model)
    first, kept = objective(), []
    for _ in range(20):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        report = _autocast_epoch(optimizer, model, objective)
        kept.append(report.outcome.keeps)
        if not report.outcome.keeps:
            assert_same(model.state_dict().values(), before.values())
    assert set(kept) == {True, False}
    assert objective() < 0.9 * first
    assert all(p.dtype is torch.float32 for p in model.parameters())
