"""COFF against its naive twin, epoch by epoch."""

import pytest

from cmalight.optim import COFF
from tests import reference
from tests.helpers import network
from tests.optim.test_matches_reference import Twin


@pytest.mark.parametrize("reshuffle", [False, True], ids=["fixed", "reshuffled"])
@pytest.mark.parametrize("lr", [1e-2, 0.5, 2.0, 1e3])
def test_coff_is_its_twin(lr, reshuffle):
    twin = Twin(batch_size=16, reshuffle=reshuffle)
    records = reference.coff(twin.problem(), twin.flat(), twin.orders, lr=lr, weight_decay=1e-3)
    twin.assert_same(COFF(twin.model.parameters(), lr=lr, weight_decay=1e-3), records)


@pytest.mark.parametrize(
    "constants",
    [
        {"tau": 10.0},
        {"gamma": 0.5},
        {"delta": 0.5},
        {"theta": 0.3, "tau": 1e-4},
        {"max_extrapolations": 0},
        {"max_extrapolations": 2, "delta": 0.7},
        {"lr": 3.0, "tau": 1.0},  # small gains
    ],
    ids=str,
)
def test_coff_with_other_constants_is_its_twin(constants):
    twin = Twin(batch_size=10, reshuffle=True)
    constants = {"lr": 0.3, **constants}
    records = reference.coff(twin.problem(), twin.flat(), twin.orders, **constants)
    twin.assert_same(COFF(twin.model.parameters(), **constants), records)


def test_the_defaults_are_those_of_the_public_code():
    optimizer = COFF(network().parameters())
    assert optimizer.zeta == 0.05
    assert optimizer.settings == {
        "theta": 0.5, "tau": 1e-2, "gamma": 1e-6, "delta": 0.9, "max_extrapolations": 100,
    }  # fmt: skip


def test_groups_keep_their_ratio_where_the_learning_rate_grows():
    twin = Twin(batch_size=10, reshuffle=True)
    lr, constants = (2.0, 0.4), {"delta": 0.5, "gamma": 0.01}
    records = reference.coff(twin.problem(), twin.flat(), twin.orders, lr=twin.per_coordinate(lr), **constants)
    optimizer = COFF(twin.groups(lr, 0.0), **constants)
    twin.assert_same(optimizer, records)
    weights, biases = (group["lr"] for group in optimizer.param_groups)
    assert weights == pytest.approx(5 * biases)
    assert any(r.next_lr > r.lr for r in records)
