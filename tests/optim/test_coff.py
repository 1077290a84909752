"""COFF: the constants of the public code, and learning rates that grow (tests/rules/test_coff.py has its decisions)."""

import pytest

from cmalight.optim import COFF
from tests.helpers import force_line_search, network, run_epoch, small_problem


def test_the_defaults_are_those_of_the_public_code():
    optimizer = COFF(network().parameters())
    assert optimizer.zeta == 0.05
    assert optimizer.settings == {
        "theta": 0.5, "tau": 1e-2, "gamma": 1e-6, "delta": 0.9, "max_extrapolations": 100,
    }  # fmt: skip


def test_groups_keep_their_ratio_where_the_learning_rate_grows():
    model, batches, objective = small_problem()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.02}]
    optimizer = COFF(groups, delta=0.5)
    force_line_search(optimizer, objective)
    report = run_epoch(optimizer, objective, model, batches)
    assert report.next_lr == report.alpha > report.lr == 0.1
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([report.alpha, report.alpha / 5])
