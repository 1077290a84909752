"""What an optimizer of one's own may have its own way."""

import copy

import pytest
import torch
from torch import nn

from cmalight import CMALight
from cmalight.optim.inner.steps import GradientSteps


class HalfSteps(GradientSteps):
    def take(self, scale):
        super().take(0.5 * scale)


class Halved(CMALight):
    def make_steps(self):
        return HalfSteps(self)


def halved():
    return Halved([nn.Parameter(torch.ones(2))], lr=0.1)


def added(optimizer):
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    return optimizer


def loaded(optimizer):
    fresh = halved()
    fresh.load_state_dict(optimizer.state_dict())
    return fresh


@pytest.mark.parametrize("change", [lambda it: it, added, loaded, copy.deepcopy])
def test_steps_of_ones_own_outlive_new_parameters_a_loaded_state_and_a_copy(change):
    optimizer = change(halved())
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step()
    for group in optimizer.param_groups:
        for p in group["params"]:
            torch.testing.assert_close(p.detach(), torch.full_like(p, 0.95))
