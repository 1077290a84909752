"""Where the published method fails and this one does not (docs/understand/counterexamples.md)."""

import math

import pytest
import torch
from torch import nn

from cmalight import CMALight, Objective, Outcome
from examples.counterexamples import noisy_least_squares, parabola_and_root
from tests import reference
from tests.helpers import run_epoch


def test_line_17_as_printed_repeats_the_same_epoch_forever():
    """f_1 = 0.1 (w−2)², f_2 = (w−2)²: both batches are least at w = 2, and a step of 1.5 overshoots on the second."""
    curvature = torch.tensor([0.2, 2.0], dtype=torch.float64)
    problem = reference.Problem(lambda w, i: (curvature[i] * (w - 2) ** 2).mean() / 2, 2)
    orders = [[torch.tensor([0]), torch.tensor([1])]] * 60
    records = reference.cmalight(problem, torch.ones(1), orders, lr=1.5, shrink_on_line_17=False)
    assert [(r.line, r.moved) for r in records[:2]] == [(7, True), (17, False)]
    assert records[1].w.item() == pytest.approx(3.4)
    assert all((r.line, r.moved, r.next_lr) == (17, False, 1.5) for r in records[1:])


def test_our_line_17_shrinks_and_converges():
    model = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    curvature = [0.2, 2.0]

    def loss_fn(output, target):
        return (target * (output - 2) ** 2).mean() / 2

    one = torch.ones(1, 1, dtype=torch.float64)
    batches = [(one, c * one) for c in curvature]
    optimizer = CMALight(model.parameters(), lr=1.5)
    objective = Objective(model, loss_fn, batches)
    reports = [run_epoch(optimizer, objective, model, batches, loss_fn=loss_fn) for _ in range(60)]
    assert [r.outcome for r in reports[:2]] == [Outcome.ACCEPTED, Outcome.SEARCH_REJECTED]
    assert reports[1].next_lr == 0.75 * 1.5
    assert model.weight.item() == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize(("reshuffle", "gradient_left"), [(False, 1.0), (True, 0.1)], ids=["fixed", "reshuffled"])
@pytest.mark.filterwarnings("ignore:Each of the last")
def test_light_stalls_where_the_gradient_is_not_zero(reshuffle, gradient_left):
    report, gradient_norm = noisy_least_squares("light", epochs=200, reshuffle=reshuffle)
    assert report.next_lr < 1e-14
    assert gradient_norm > gradient_left


@pytest.mark.parametrize("reshuffle", [False, True], ids=["fixed", "reshuffled"])
@pytest.mark.filterwarnings("ignore:Each of the last")
def test_certified_converges_on_the_same_problem(reshuffle):
    _, gradient_norm = noisy_least_squares("certified", epochs=100, reshuffle=reshuffle)
    assert gradient_norm < 1e-3


@pytest.mark.parametrize(("start", "lr"), [(0.0, 0.01), (0.1, 1.0), (0.9, 30.0)])
def test_light_never_moves_between_the_centres_of_two_parabolas(start, lr):
    """f̃ > f(w⁰) for every step size, in either order: all of lines 6, 10 and 15 refuse."""
    centres = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, start)
    batches = [(torch.ones(1, 1, dtype=torch.float64), c[None]) for c in centres]
    optimizer = CMALight(model.parameters(), lr=lr)
    objective = Objective(model, nn.MSELoss(), batches)
    reports = [run_epoch(optimizer, objective, model, batches[:: (-1) ** k]) for k in range(20)]
    assert all(r.alpha == 0.0 for r in reports)
    assert model.weight.item() == start
    assert reports[-1].next_lr == pytest.approx(0.75**20 * lr)


@pytest.mark.parametrize("start", [6.0, -20.0])
def test_light_goes_round_in_a_circle_and_says_so(start):
    """From √12 the first batch leads to √3 and the second to −√12, where the objective is as high as before."""
    with pytest.warns(UserWarning, match="changed neither the loss to beat nor the learning rate"):
        report, path = parabola_and_root("light", start=start, epochs=80, reshuffle=False)
    assert (report.outcome, report.next_lr) == (Outcome.SEARCH_SUCCEEDED, 0.5)
    assert path[-1] == pytest.approx(math.copysign(math.sqrt(12), path[-1]), rel=1e-9)
    assert path[-2] == pytest.approx(-path[-1], rel=1e-9)
    assert path[-4:-2] == pytest.approx(path[-2:], rel=1e-9)


@pytest.mark.parametrize(
    ("line_search", "reshuffle"), [("certified", False), ("certified", True), ("light", True)], ids=str
)
def test_the_certified_search_and_another_order_leave_the_circle(line_search, reshuffle):
    _, path = parabola_and_root(line_search, start=6.0, epochs=80, reshuffle=reshuffle)
    assert abs(path[-1]) < 1e-4
