"""A run that was saved at any epoch boundary and loaded into fresh objects goes on bit for bit."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from cmalight import CMA, IG, CMALight, EpochReport, Outcome

from .loop import assert_same_models, batches, network, run_epoch, through_a_file, train

EPOCHS = 6

_SEARCHES = {
    Outcome.SEARCH_SHORT,
    Outcome.SEARCH_SUCCEEDED,
    Outcome.SEARCH_FAILED_KEPT,
    Outcome.SEARCH_FAILED_REJECTED,
    Outcome.SEARCH_REJECTED,
}

Make = Callable[..., Any]

_RUNS = [
    pytest.param(lambda params, **kw: CMALight(params, **{"lr": 0.8, **kw}), False, id="light"),
    pytest.param(lambda params, **kw: CMALight(params, **{"lr": 0.5, **kw}), True, id="light-norm"),
    pytest.param(
        lambda params, **kw: CMALight(params, **{"lr": 0.8, "line_search": "certified", **kw}), False, id="certified"
    ),
    pytest.param(
        lambda params, **kw: CMALight(params, **{"lr": 0.8, "line_search": "certified", **kw}),
        True,
        id="certified-norm",
    ),
    pytest.param(lambda params, **kw: CMA(params, **{"lr": 0.8, **kw}), False, id="CMA"),
    pytest.param(lambda params, **kw: CMA(params, **{"lr": 0.8, **kw}), True, id="CMA-norm"),
    pytest.param(lambda params, **kw: IG(params, **{"lr": 0.2, **kw}), False, id="IG"),
    pytest.param(lambda params, **kw: IG(params, **{"lr": 0.2, **kw}), True, id="IG-norm"),
]

each_run = pytest.mark.parametrize(("make", "norm"), _RUNS)


def _resume(make: Make, norm: bool, saved: Any, **settings: Any) -> tuple[nn.Module, Any]:
    model = network(norm=norm)
    optimizer = make(model.parameters(), **settings)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer


def _saved_after(make: Make, norm: bool, epochs: int) -> Any:
    model = network(norm=norm)
    optimizer = make(model.parameters())
    train(optimizer, model, range(epochs))
    return through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def _whole_run(make: Make, norm: bool) -> tuple[nn.Module, list[EpochReport]]:
    model = network(norm=norm)
    optimizer = make(model.parameters())
    return model, [run_epoch(optimizer, model, batches(k)) for k in range(EPOCHS)]


@each_run
def test_the_run_has_an_acceptance_a_rejection_and_a_line_search_in_it(make: Make, norm: bool) -> None:
    """Otherwise the tests below would show little; IG accepts everything."""
    _, reports = _whole_run(make, norm)
    outcomes = {report.outcome for report in reports}
    if outcomes == {Outcome.UNCONTROLLED}:
        return
    assert Outcome.ACCEPTED in outcomes
    assert any(report.alpha == 0.0 for report in reports)
    assert outcomes & _SEARCHES


@each_run
@pytest.mark.parametrize("boundary", range(EPOCHS + 1))
def test_a_resumed_run_ends_with_the_weights_and_reports_of_the_whole_run(
    make: Make, norm: bool, boundary: int
) -> None:
    whole, reports = _whole_run(make, norm)
    model, optimizer = _resume(make, norm, _saved_after(make, norm, boundary))
    assert train(optimizer, model, range(boundary, EPOCHS)) == [repr(report) for report in reports[boundary:]]
    assert_same_models(model, whole)
    assert optimizer.evaluations == sum(report.evaluations for report in reports)


@each_run
def test_a_run_resumed_at_every_boundary_ends_as_the_whole_run(make: Make, norm: bool) -> None:
    whole, reports = _whole_run(make, norm)
    saved = _saved_after(make, norm, 0)
    resumed = []
    for k in range(EPOCHS):
        model, optimizer = _resume(make, norm, saved)
        resumed += train(optimizer, model, [k])
        saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert resumed == [repr(report) for report in reports]
    assert_same_models(model, whole)


@each_run
def test_the_first_lr_of_the_resuming_script_does_not_matter(make: Make, norm: bool) -> None:
    whole, _ = _whole_run(make, norm)
    model, optimizer = _resume(make, norm, _saved_after(make, norm, 3), lr=0.011)
    train(optimizer, model, range(3, EPOCHS))
    assert_same_models(model, whole)


@each_run
def test_the_optimizer_may_be_loaded_before_the_model(make: Make, norm: bool) -> None:
    """Loading the weights afterwards must not make the control forget what it knows of them."""
    _, reports = _whole_run(make, norm)
    saved = _saved_after(make, norm, 3)
    model = network(norm=norm)
    optimizer = make(model.parameters())
    optimizer.load_state_dict(saved["optimizer"])
    model.load_state_dict(saved["model"])
    assert train(optimizer, model, range(3, EPOCHS)) == [repr(report) for report in reports[3:]]


@each_run
def test_a_run_saved_inside_an_abandoned_epoch_resumes_before_that_epoch(make: Make, norm: bool) -> None:
    """The state dict taken in mid-epoch is that of the last boundary; abandoning brings the weights back to it."""
    _, reports = _whole_run(make, norm)
    model = network(norm=norm)
    optimizer = make(model.parameters())
    train(optimizer, model, range(3))
    boundary = optimizer.state_dict()
    with optimizer.epoch(lambda: math.inf, model=model) as epoch:
        model(batches(3)[0][0]).sum().backward()
        epoch.observe(1.0, 4)
        optimizer.step()
        groups = optimizer.state_dict()["param_groups"]  # but for f(w^k), which is not the value at these weights
        unknown = {"f_current": math.inf, "sample_current": math.inf}
        assert groups == [{**boundary["param_groups"][0], **unknown}, *boundary["param_groups"][1:]]
        epoch.abandon()
    assert optimizer.state_dict() == boundary
    saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    resumed, loaded = _resume(make, norm, saved)
    assert train(loaded, resumed, range(3, EPOCHS)) == [repr(report) for report in reports[3:]]
