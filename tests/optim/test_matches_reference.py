"""The optimizers against the naive flat-vector twin, epoch by epoch."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from cmalight import CMA, COFF, IG, CMALight, Objective
from tests import reference
from tests.helpers import MSE, network, run_epoch, table

SAMPLES, EPOCHS = 70, 20
# Above this loss an epoch has multiplied rounding errors too often for its figures, though not its decision, to agree.
BLOWN_UP = 1e9
LEARNING_RATES = [1e-4, 1e-2, 0.5, 10.0, 1e3]


class Twin:
    """One training problem, seen by the optimizer as a model and by the reference as a flat vector."""

    def __init__(self, *, batch_size, reshuffle, seed=0, hostile=None):
        self.x, self.y = table(SAMPLES, noise=0.3, seed=seed)
        self.model = network(seed=seed)
        if hostile is not None:
            self.model = nn.Linear(4, 1).double()
            self.x[-1] *= hostile
        generator = torch.Generator().manual_seed(seed)
        in_order = torch.arange(SAMPLES)
        self.orders = [
            list((torch.randperm(SAMPLES, generator=generator) if reshuffle else in_order).split(batch_size))
            for _ in range(EPOCHS)
        ]
        self.sizes = [p.numel() for p in self.model.parameters()]

    def groups(self, lr, weight_decay):
        """Weights and biases as two groups, where `lr` or `weight_decay` is a pair."""
        lrs, decays = _pair(lr), _pair(weight_decay)
        weights = [p for n, p in self.model.named_parameters() if n.endswith("weight")]
        biases = [p for n, p in self.model.named_parameters() if n.endswith("bias")]
        return [
            {"params": params, "lr": lr_of_group, "weight_decay": decay_of_group}
            for params, lr_of_group, decay_of_group in zip((weights, biases), lrs, decays, strict=True)
        ]

    def per_coordinate(self, value):
        """The same pair as one number a coordinate of the flat vector."""
        for_weights, for_biases = _pair(value)
        parts = [
            torch.full((p.numel(),), for_weights if n.endswith("weight") else for_biases, dtype=torch.float64)
            for n, p in self.model.named_parameters()
        ]
        return torch.cat(parts)

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def problem(self):
        names = [n for n, _ in self.model.named_parameters()]
        shapes = [p.shape for p in self.model.parameters()]

        def batch_loss(w, indices):
            parts = [part.view(shape) for part, shape in zip(w.split(self.sizes), shapes, strict=True)]
            output = functional_call(self.model, dict(zip(names, parts, strict=True)), (self.x[indices],))
            return MSE(output, self.y[indices])

        return reference.Problem(batch_loss, SAMPLES)

    def check(self, optimizer_class, *, lr=0.3, weight_decay=0.0, **constants):
        """Train by the optimizer and by its naive twin, compare, and return what the twin did."""
        method = {CMALight: reference.cmalight, CMA: reference.cma, COFF: reference.coff, IG: reference.ig}
        pairs = {"lr": self.per_coordinate(lr), "weight_decay": self.per_coordinate(weight_decay)}
        records = method[optimizer_class](self.problem(), self.flat(), self.orders, **pairs, **constants)
        if isinstance(lr, tuple):
            optimizer = optimizer_class(self.groups(lr, weight_decay), **constants)
        else:
            optimizer = optimizer_class(self.model.parameters(), lr=lr, weight_decay=weight_decay, **constants)
        batches = list(zip(self.x.split(16), self.y.split(16), strict=True))
        objective = Objective(self.model, MSE, batches) if optimizer.needs_objective else None
        for order, expected in zip(self.orders, records, strict=True):
            batches = [(self.x[i], self.y[i]) for i in order]
            report = run_epoch(optimizer, objective, self.model, batches)
            close = {"rel": 1e-8, "abs": 1e-14}
            assert report.lr == pytest.approx(expected.lr, rel=1e-12)
            assert report.next_lr == pytest.approx(expected.next_lr, rel=1e-12)
            assert report.alpha == pytest.approx(expected.alpha, rel=1e-12)
            assert report.evaluations == expected.evaluations
            assert report.phi == pytest.approx(expected.phi, nan_ok=True, **close)
            if expected.f_tilde < BLOWN_UP:
                assert report.f_tilde == pytest.approx(expected.f_tilde, **close)
                assert report.direction_norm == pytest.approx(expected.direction_norm, **close)
            torch.testing.assert_close(self.flat(), expected.w, rtol=1e-8, atol=1e-10, equal_nan=True)
        return records


def _pair(value):
    return value if isinstance(value, tuple) else (value, value)


each_search = pytest.mark.parametrize("line_search", ["light", "certified"])
each_order = pytest.mark.parametrize("reshuffle", [False, True], ids=["fixed", "reshuffled"])
CONSTANTS = [
    {"gamma": 0.5},
    {"tau": 10.0},
    {"delta": 0.5, "gamma": 1e-4},
    {"theta": 0.3, "tau": 1e-4},
    {"max_extrapolations": 0},
    {"max_extrapolations": 2, "delta": 0.7},
]


@each_search
@each_order
@pytest.mark.parametrize("lr", LEARNING_RATES)
def test_cmalight_with_a_short_last_batch(lr, reshuffle, line_search):
    Twin(batch_size=16, reshuffle=reshuffle).check(CMALight, lr=lr, line_search=line_search)


@each_search
@pytest.mark.parametrize("lr", [*LEARNING_RATES, 1e10])
def test_cmalight_with_a_single_batch(lr, line_search):
    """Where one evaluation confirms what is kept, under the light search too."""
    records = Twin(batch_size=SAMPLES, reshuffle=False).check(CMALight, lr=lr, line_search=line_search)
    assert lr < 10 or 22 in {r.line for r in records}


@pytest.mark.parametrize(("hostile", "lr"), [(10.0, 0.1), (10.0, 0.3), (100.0, 3e-3), (100.0, 0.1)])
def test_certified_cmalight_on_a_row_whose_step_leads_far_away(hostile, lr):
    """f_tilde does not see where the last steps lead."""
    twin = Twin(batch_size=10, reshuffle=True, hostile=hostile)
    assert 22 in {r.line for r in twin.check(CMALight, lr=lr, line_search="certified")}


@each_search
@pytest.mark.parametrize("lr", [(0.5, 0.1), (0.1, 2.0)])
@pytest.mark.parametrize("weight_decay", [0.0, (0.05, 0.0)])
def test_cmalight_with_parameter_groups_and_weight_decay(lr, weight_decay, line_search):
    twin = Twin(batch_size=16, reshuffle=True, seed=1)
    twin.check(CMALight, lr=lr, weight_decay=weight_decay, line_search=line_search)


@each_search
@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_cmalight_with_other_constants(constants, line_search):
    Twin(batch_size=10, reshuffle=False, seed=2).check(CMALight, line_search=line_search, **constants)


@each_order
@pytest.mark.parametrize("lr", LEARNING_RATES)
def test_cma(lr, reshuffle):
    Twin(batch_size=16, reshuffle=reshuffle).check(CMA, lr=lr, weight_decay=1e-3)


@pytest.mark.parametrize("lr", LEARNING_RATES[:3])
def test_ig(lr):
    Twin(batch_size=16, reshuffle=True).check(IG, lr=lr, decay=0.2, weight_decay=1e-3)


@each_order
@pytest.mark.parametrize("lr", [1e-2, 0.5, 2.0, 1e3])
def test_coff(lr, reshuffle):
    Twin(batch_size=16, reshuffle=reshuffle).check(COFF, lr=lr, weight_decay=1e-3)


@pytest.mark.parametrize("constants", [*CONSTANTS, {"lr": 3.0, "tau": 1.0}], ids=str)
def test_coff_with_other_constants(constants):
    Twin(batch_size=10, reshuffle=True).check(COFF, **constants)


def test_the_defaults_of_coff_are_those_of_the_public_code():
    optimizer = COFF(network().parameters())
    assert optimizer.zeta == 0.05
    assert optimizer.settings == {
        "theta": 0.5, "tau": 1e-2, "gamma": 1e-6, "delta": 0.9, "max_extrapolations": 100,
    }  # fmt: skip


def test_groups_keep_their_ratio_where_the_learning_rate_of_coff_grows():
    records = Twin(batch_size=10, reshuffle=True).check(COFF, lr=(2.0, 0.4), delta=0.5, gamma=0.01)
    assert any(r.next_lr > r.lr for r in records)
