"""The lemmas of docs/understand/theory.md, in figures: their constants on problems where these are known."""

import itertools
import math
import random

import pytest

from benchmarks import search_counterexamples as problems
from benchmarks.search_counterexamples import ORDERS, Pair, batch_loss, bump, epochs_of, random_pair, root, wave
from cmalight.rules.outcome import Outcome

# The largest slope and curvature of those curves that have one everywhere.
BOUNDS = {root: (1.0, 1.0), wave: (3.0, 9.0), bump: (3 * math.sqrt(3) / 8, 2.0)}
GAMMA, DELTA, TAU = 1e-2, 0.9, 1e-2
SLACK = 1e-9


@pytest.fixture(autouse=True)
def no_regularisation(monkeypatch):
    """Whose slope has no bound."""
    monkeypatch.setattr(problems, "REGULARISATION", 0.0)


def smooth_pairs(count):
    """Random ones with their G and L."""
    for number in itertools.count():
        pair = random_pair(1, number)
        batches = [kept for batch in pair.batches if (kept := [r for r in batch if r.curve in BOUNDS])]
        if len(batches) < 2:
            continue
        slope, curvature = (max(sum(r.a * BOUNDS[r.curve][i] for r in b) for b in batches) for i in (0, 1))
        yield Pair(batches, pair.start, pair.lr), slope, curvature
        count -= 1
        if not count:
            return


def f(pair, w, weights=None):
    """With batches that count by `weights`."""
    weights = weights or [1 / len(pair.batches)] * len(pair.batches)
    return sum(a * batch_loss(batch, w) for a, batch in zip(weights, pair.batches, strict=True))


def gradient_of(pair, w, weights=None):
    weights = weights or [1 / len(pair.batches)] * len(pair.batches)
    total = [0.0] * len(w)
    for a, batch in zip(weights, pair.batches, strict=True):
        gradient = [0.0] * len(w)
        batch_loss(batch, w, gradient)
        total = [x + a * g for x, g in zip(total, gradient, strict=True)]
    return total


def test_lemma_2_what_an_epoch_does_to_first_order():
    """Batches of different sizes, and a step size of its own for each unknown."""
    draw = random.Random(0)
    for pair, slope, curvature in smooth_pairs(400):
        zeta, w = 10 ** draw.uniform(-5, 0), pair.start
        ratios = [1.0, *(draw.uniform(0.01, 1) for _ in w[1:])]
        sizes = [draw.randint(1, 4) for _ in pair.batches]
        weights = [n / sum(sizes) for n in sizes]
        h, end, seen = zeta * sum(sizes) / sizes[0], w, 0.0
        for number, n in enumerate(sizes):
            alone = [float(number == other) for other in range(len(sizes))]
            seen += weights[number] * f(pair, end, alone)
            gradient = gradient_of(pair, end, alone)
            end = [x - zeta * n / sizes[0] * s * g for x, s, g in zip(end, ratios, gradient, strict=True)]
        gradient = gradient_of(pair, w, weights)
        g2 = sum(s * g * g for s, g in zip(ratios, gradient, strict=True))
        e = [(y - x) / h + s * g for x, y, s, g in zip(w, end, ratios, gradient, strict=True)]
        error = curvature * slope**2 * h**2
        assert math.dist(end, w) <= h * slope * (1 + SLACK)
        assert math.hypot(*e) <= curvature * slope * h / 2 + SLACK
        assert f(pair, end, weights) <= f(pair, w, weights) - h * g2 + error + SLACK
        assert seen >= f(pair, w, weights) - h / 2 * g2 - error / 3 - SLACK


def constant(slope, curvature):
    """C of Lemma 4, for groups with one `lr`."""
    lg2 = curvature * slope**2
    return max(
        (TAU + curvature * slope / 2) * slope,
        (1 + GAMMA) * lg2 / (1 - GAMMA),
        (1.5 * lg2 + curvature * TAU / DELTA) / (1 - GAMMA * DELTA),
        8 / 3 * lg2,
    )


@pytest.mark.parametrize("order", ORDERS)
def test_lemmas_4_and_5_where_the_step_size_shrinks_and_what_decreases(order):
    seen = set()
    for pair, slope, curvature in smooth_pairs(100):
        epochs = list(itertools.islice(epochs_of(pair, certified=True, order=order), 40))
        for epoch, later in itertools.pairwise(epochs):
            decision, batches, zeta = epoch.decision, epoch.inner.batches, epoch.inner.zeta
            h, error = batches * zeta, curvature * (slope * batches * zeta) ** 2
            before, after = (max(f(pair, at.w), at.known.phi) for at in (epoch, later))
            seen.add(decision.outcome)
            if decision.zeta_factor < 1.0:
                assert sum(x * x for x in gradient_of(pair, epoch.w)) <= constant(slope, curvature) * h + SLACK
                assert after <= before + error + SLACK
            elif decision.outcome is Outcome.ACCEPTED:
                assert after <= before - GAMMA * zeta / batches + 4 / 3 * error + SLACK
            else:
                gain = GAMMA * DELTA * decision.alpha * epoch.inner.direction_norm**2 / batches
                assert f(pair, later.w) <= f(pair, epoch.w) - gain + SLACK
                assert after <= before - gain + SLACK
    assert seen >= {Outcome.ACCEPTED, Outcome.SEARCH_SUCCEEDED, Outcome.SEARCH_FAILED_KEPT, Outcome.UNCONFIRMED}
