"""What an epoch collects of its losses."""

import math

import pytest
import torch

from cmalight.optim.inner.tally import LossSum


def test_losses_of_another_device_are_not_waited_for():
    losses = LossSum()
    for number in range(200):
        losses.add(torch.ones((), device="meta"), 10.0 if number % 7 else 3.0)
        losses.add_term(torch.ones((), device="meta"), 0.5)
    with pytest.raises((RuntimeError, NotImplementedError)):
        losses.value()  # this waits, and there nobody ever answers


def test_losses_on_the_host_are_added_up_in_double_precision():
    losses = LossSum()
    for loss in (0.25, torch.tensor(-0.5), torch.tensor([1e-12]), torch.tensor(2.0, dtype=torch.bfloat16)):
        losses.add(loss, 4.0)
    losses.add_term(torch.tensor(3.0), 0.5)
    assert losses.value() == pytest.approx(4 * (0.25 - 0.5 + 1e-12 + 2.0) + 1.5, rel=1e-15)
    assert losses.value_and_lowest() == (losses.value(), -0.5)
    losses.add(torch.tensor(math.nan), 1.0)
    assert math.isnan(losses.value())
