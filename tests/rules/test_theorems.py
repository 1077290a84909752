"""The lemmas of docs/understand/proofs.md, in figures: their constants on problems where these are known."""

import itertools
import math
import random

import mpmath
import pytest

from benchmarks import search_counterexamples as problems
from benchmarks.search_counterexamples import ORDERS, Pair, batch_loss, bump, epochs_of, random_pair, root, wave
from cmalight.rules.baselines import MonotoneRule
from cmalight.rules.certified import CertifiedRule
from cmalight.rules.outcome import Outcome
from cmalight.rules.paper import InnerCycle, Known, PaperRule

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


def f(pair, w):
    return sum(batch_loss(batch, w) for batch in pair.batches) / len(pair.batches)


def gradient_of(pair, w):
    total = [0.0] * len(w)
    for batch in pair.batches:
        batch_loss(batch, w, total)
    return [g / len(pair.batches) for g in total]


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
            if decision.lr_factor < 1.0:
                assert sum(x * x for x in gradient_of(pair, epoch.w)) <= constant(slope, curvature) * h + SLACK
                assert after <= before + error + SLACK
                assert after <= f(pair, epoch.w) + (slope**2 + GAMMA) * h + error + SLACK  # (8)
            elif decision.outcome is Outcome.ACCEPTED:
                assert after <= before - GAMMA * zeta / batches + 4 / 3 * error + SLACK
            else:
                gain = GAMMA * DELTA * decision.alpha * epoch.inner.direction_norm**2 / batches
                assert f(pair, later.w) <= f(pair, epoch.w) - gain + SLACK
                assert after <= before - gain + SLACK
    assert seen >= {Outcome.ACCEPTED, Outcome.SEARCH_SUCCEEDED, Outcome.SEARCH_FAILED_KEPT, Outcome.UNCONFIRMED}


class AlongD:
    """f(w^k + alpha d) for any f."""

    def __init__(self, f, w, end, zeta):
        self._f, self._w, self._end, self._zeta = f, w, end, zeta

    def point(self, alpha):
        return [x + alpha / self._zeta * (y - x) for x, y in zip(self._w, self._end, strict=True)]

    def f_start(self):
        return self._f(self._w)

    def f_at(self, alpha):
        return self._f(self.point(alpha))


def plain_steps(pair, w, eta, numbers):
    for number in numbers:
        gradient = [0.0] * len(w)
        batch_loss(pair.batches[number], w, gradient)
        w = [x - eta * g for x, g in zip(w, gradient, strict=True)]
    return w


def test_theorem_7_a_base_that_jumps_at_random():
    """Whatever the base does, f never rises, η shrinks where the gradient is small, and few epochs are refused."""
    draw = random.Random(1)
    rule = CertifiedRule(plain=MonotoneRule(0.75, TAU, GAMMA, DELTA, 100))
    for pair, slope, curvature in smooth_pairs(60):
        count = len(pair.batches)
        memory, w = rule.init(f(pair, pair.start), float(count)), pair.start
        refused = shrunk = 0
        for _ in range(150):
            numbers = draw.sample(range(count), count)
            is_plain = memory.plain
            end = plain_steps(pair, w, memory.eta, numbers) if is_plain else [x + draw.gauss(0, 1) for x in w]
            line = AlongD(lambda at, pair=pair: f(pair, at), w, end, memory.eta)
            inner = InnerCycle(memory.eta, 0.0, math.dist(end, w) / memory.eta, float(count))
            decision = rule.decide(memory, inner, line)
            after = decision.memory
            assert after.f <= memory.f
            if after.eta < memory.eta:
                lg2 = curvature * slope**2
                c = max(constant(slope, curvature), (1.5 * lg2 + curvature * TAU / DELTA) / (1 - GAMMA))
                assert sum(g * g for g in gradient_of(pair, w)) <= c * count * memory.eta + SLACK
                shrunk += 1
            refused += decision.outcome is Outcome.UNDONE
            w, memory = (line.point(decision.alpha) if decision.alpha else w), after
        assert shrunk > 0
        assert refused <= 75


def test_theorem_4_a_search_that_the_growing_guard_ended_lowers_f_linearly_in_zeta():
    seen = 0
    for pair, _, _ in smooth_pairs(100):
        count, w, zeta = float(len(pair.batches)), pair.start, pair.lr
        f_0 = f(pair, w)
        known = Known(f_0, f_0, f_0)
        for _ in range(40):
            guard = math.ceil(2 * math.log(pair.lr / zeta) / math.log(1 / DELTA) - SLACK)
            rule = PaperRule(0.75, TAU, GAMMA, DELTA, guard, certified=True)
            end = plain_steps(pair, w, zeta, range(len(pair.batches)))
            line = AlongD(lambda at, pair=pair: f(pair, at), w, end, zeta)
            seen_on_the_way = f(pair, w)
            inner = InnerCycle(zeta, seen_on_the_way, math.dist(end, w) / zeta, count)
            decision = rule.decide(known, inner, line)
            if decision.outcome is Outcome.SEARCH_SUCCEEDED and decision.alpha >= zeta * DELTA**-guard * (1 - SLACK):
                fall = f(pair, w) - f(pair, line.point(decision.alpha))
                assert fall >= GAMMA * DELTA * (TAU * pair.lr) ** 2 * zeta / count - SLACK
                seen += 1
            w, zeta = (line.point(decision.alpha) if decision.alpha else w), zeta * decision.lr_factor
            known = decision.memory
    assert seen > 20


@pytest.mark.parametrize(
    ("order", "grows", "after_100", "after_200"),
    [("fixed", True, 1e-30, 1e-55), ("reshuffled", True, 1e-30, 1e-55), ("fixed", False, 1e-14, 1e-15)],
)
def test_theorem_5_a_linear_rate_where_the_batches_disagree(order, grows, after_100, after_200):
    """Noisy least squares in one unknown, with 80 digits: f − f* falls linearly, but not with a constant guard."""
    draw = random.Random(0)
    rows = [(draw.uniform(0.5, 2), draw.gauss(0, 1)) for _ in range(4)]
    with mpmath.workdps(80):
        rows = [(mpmath.mpf(c), mpmath.mpf(b)) for c, b in rows]
        best = sum(c * b for c, b in rows) / sum(c for c, _ in rows)

        def f(at):
            return sum(c * (at[0] - b) ** 2 / 2 for c, b in rows) / 4

        w, zeta, f_0 = [mpmath.mpf(3)], mpmath.mpf("0.2"), f([mpmath.mpf(3)])
        known, gaps = Known(f_0, f_0, f_0), []
        for _ in range(200):
            total, at = 0, w[0]
            for c, b in draw.sample(rows, 4) if order == "reshuffled" else rows:
                total += c * (at - b) ** 2 / 2
                at -= zeta * c * (at - b)
            line = AlongD(f, w, [at], zeta)
            guard = 100 + grows * math.ceil(2 * mpmath.log(mpmath.mpf("0.2") / zeta) / math.log(1 / DELTA))
            rule = PaperRule(0.75, TAU, GAMMA, DELTA, guard, certified=True)
            decision = rule.decide(known, InnerCycle(zeta, total / 4, abs(at - w[0]) / zeta, 4.0), line)
            if decision.alpha:
                w = line.point(decision.alpha)
            zeta, known = zeta * decision.lr_factor, decision.memory
            gaps.append(f(w) - f([best]))
        assert gaps[99] < after_100
        assert after_200 * 1e-3 < gaps[199] < after_200
