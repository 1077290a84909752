"""Random small non-convex problems on which a line search might stall or go round in a circle.

A problem has one to three unknowns and two to six batches. A batch is a sum of ridge functions a ψ(u·w − c), with a
random direction u, whose ψ is a parabola, a root, a double well, a bounded bump or a wave, and of ‖w‖²/20, so that it
is coercive. A pair is a problem with a start and a first step size, from rather small to far too large. Every pair is
run by the package's own rule, on plain floats: with both line searches, in fixed and in reshuffled order.

How a run ended: it *arrived* where ‖∇f‖ fell below a hundredth of the batches' own gradients (or below 1e-4), which
is above what the rounding of f allows, and was so for fifty epochs more, so that a run that crosses a stationary point
has not; it *stalled* where the step size fell to 1e-12 of the first before that; it *circles* where neither the step
size nor φ changed in the second half of all epochs that it was given; else it is *under way*.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cmalight.rules.decision import Decision
from cmalight.rules.paper import InnerCycle, Known, PaperRule

Vector = list[float]
Curve = Callable[[float], tuple[float, float]]  # ψ and ψ'

ORDERS = ("fixed", "reshuffled")
EPOCHS = {"light": 2_000, "certified": 20_000}  # what a run is given
ENDS = ("arrived", "stalled", "circles", "under way")
STAYS = 50  # epochs after the one that arrived
REGULARISATION = 0.1


def parabola(t: float) -> tuple[float, float]:
    return t * t / 2, t


def root(t: float) -> tuple[float, float]:
    length = math.hypot(1.0, t)
    return length - 1, t / length


def double_well(t: float) -> tuple[float, float]:
    return (t * t - 1) * (t * t - 1) / 4, t * (t * t - 1)


def bump(t: float) -> tuple[float, float]:
    near = 1 / (1 + t * t)
    return 1 - near, 2 * t * near * near


def wave(t: float) -> tuple[float, float]:
    return 1 - math.cos(3 * t), 3 * math.sin(3 * t)


@dataclass(frozen=True)
class Ridge:
    """a ψ(u·w − c)."""

    curve: Curve
    a: float
    u: Vector
    c: float


@dataclass(frozen=True)
class Pair:
    """A problem, a start, and a first step size."""

    batches: list[list[Ridge]]
    start: Vector
    lr: float


def batch_loss(batch: list[Ridge], w: Vector, gradient: Vector | None = None) -> float:
    """Of one batch, whose gradient is added to `gradient`; infinite where w is too far away for any curve."""
    loss = 0.0
    for i, x in enumerate(w):
        if not abs(x) < 1e100:
            return math.inf
        loss += x * x
        if gradient is not None:
            gradient[i] += REGULARISATION * x
    loss *= REGULARISATION / 2
    for ridge in batch:
        t = -ridge.c
        for u, x in zip(ridge.u, w, strict=True):
            t += u * x
        value, slope = ridge.curve(t)
        loss += ridge.a * value
        if gradient is not None:
            slope *= ridge.a
            for i, u in enumerate(ridge.u):
                gradient[i] += slope * u
    return loss


def random_pair(seed: int, number: int) -> Pair:
    """The pair of this number; the same in every version of Python."""
    draw = random.Random(1_000_003 * seed + number)
    unknowns = draw.choice((1, 1, 2, 3))

    def ridge() -> Ridge:
        u = [draw.gauss(0, 1) for _ in range(unknowns)]
        curve = draw.choice((parabola, root, double_well, bump, wave))
        return Ridge(curve, 10 ** draw.uniform(-1.5, 1.5), [x / math.hypot(*u) for x in u], draw.gauss(0, 2))

    batches = [[ridge() for _ in range(draw.randint(1, 3))] for _ in range(draw.randint(2, 6))]
    return Pair(batches, [draw.gauss(0, 4) for _ in range(unknowns)], 10 ** draw.uniform(-2, 1))


class Line:
    """What the rule may ask for along d, from w^k."""

    def __init__(self, pair: Pair, w: Vector, end: Vector, zeta: float, f_current: float | None) -> None:
        self._pair, self._w, self._end, self._zeta = pair, w, end, zeta
        self._f_current = f_current

    def point(self, alpha: float) -> Vector:
        if alpha in (0.0, self._zeta):
            return self._end if alpha else self._w
        share = alpha / self._zeta
        return [x + share * (y - x) for x, y in zip(self._w, self._end, strict=True)]

    def f_at(self, alpha: float) -> float:
        w = self.point(alpha)
        f = sum(batch_loss(batch, w) for batch in self._pair.batches) / len(self._pair.batches)
        return f if math.isfinite(f) else math.inf

    def f_start(self) -> float:
        return self.f_at(0.0) if self._f_current is None else self._f_current


@dataclass(frozen=True)
class Epoch:
    """Where it began, what it saw, and what came of it."""

    w: Vector
    inner: InnerCycle
    known: Known
    decision: Decision[Known]


@dataclass(frozen=True)
class Run:
    """How a run ended: where, after how many epochs, and with which step size."""

    end: str
    epochs: int
    zeta: float
    w: Vector


def has_arrived(pair: Pair, w: Vector) -> bool:
    whole, of_batches = [0.0] * len(w), 0.0
    for batch in pair.batches:
        gradient = [0.0] * len(w)
        batch_loss(batch, w, gradient)
        of_batches += math.hypot(*gradient)
        whole = list(map(float.__add__, whole, gradient))
    return math.hypot(*whole) <= max(1e-2 * of_batches, 1e-4 * len(pair.batches))


def orders(batches: int, order: str) -> Iterator[list[int]]:
    draw = random.Random(0)
    numbers = list(range(batches))
    while True:
        if order == "reshuffled":
            draw.shuffle(numbers)
        yield numbers


def epochs_of(pair: Pair, *, certified: bool, order: str) -> Iterator[Epoch]:
    """Under the paper's rule with its default constants, without end."""
    rule = PaperRule(theta=0.75, tau=1e-2, gamma=1e-2, delta=0.9, max_extrapolations=100, certified=certified)
    w, zeta, batches = pair.start, pair.lr, float(len(pair.batches))
    f_0 = Line(pair, w, w, zeta, None).f_at(0.0)
    known = Known(f_0, f_0, f_0)
    for numbers in orders(len(pair.batches), order):
        total, end = 0.0, w
        for number in numbers:
            gradient = [0.0] * len(w)
            total += batch_loss(pair.batches[number], end, gradient)
            end = [x - zeta * g for x, g in zip(end, gradient, strict=True)]
        f_tilde = total / batches if math.isfinite(total) else math.inf
        inner = InnerCycle(zeta, f_tilde, math.dist(end, w) / zeta, batches)
        line = Line(pair, w, end, zeta, known.f_current)
        decision = rule.decide(known, inner, line)
        yield Epoch(w, inner, known, decision)
        w, zeta = line.point(decision.alpha), zeta * decision.lr_factor
        known = decision.memory


def run(pair: Pair, *, certified: bool, order: str, epochs: int) -> Run:
    """Until it has arrived and stayed, or stalled, or has had its epochs."""
    last_change, arrived = 0, None
    for number, epoch in enumerate(itertools.islice(epochs_of(pair, certified=certified, order=order), epochs)):
        if not has_arrived(pair, epoch.w):
            arrived = None
            if epoch.inner.zeta < 1e-12 * pair.lr:
                return Run("stalled", number, epoch.inner.zeta, epoch.w)
        elif arrived is None:
            arrived = number
        elif number - arrived >= STAYS:
            return Run("arrived", arrived, epoch.inner.zeta, epoch.w)
        if (epoch.decision.lr_factor, epoch.decision.memory.phi) != (1.0, epoch.known.phi):
            last_change = number
    return Run("circles" if last_change < epochs // 2 else "under way", epochs, epoch.inner.zeta, epoch.w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="how many of those that did not arrive to print, each")
    options = parser.parse_args()
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    epochs = collections.defaultdict(list)
    for number in range(options.pairs):
        pair = random_pair(options.seed, number)
        for search, order in itertools.product(EPOCHS, ORDERS):
            ended = run(pair, certified=search == "certified", order=order, epochs=EPOCHS[search])
            counts[search, order, ended.end] += 1
            epochs[search, order].append(ended.epochs if ended.end == "arrived" else math.inf)
            if ended.end != "arrived" and counts[search, order, ended.end] <= options.show:
                print(f"pair {number}, {search}, {order}: {ended.end}, step size {ended.zeta:.1e}, w = {ended.w}")
    print(f"\n| line search | order | {' | '.join(ENDS)} | epochs: median | most |\n|---|---|{'---:|' * 6}")
    for search, order in itertools.product(EPOCHS, ORDERS):
        arrived = sorted(epochs[search, order])
        row = " | ".join(str(counts[search, order, end]) for end in ENDS)
        most = max((count for count in arrived if count < math.inf), default=math.nan)
        median = f"{arrived[len(arrived) // 2]:.0f}".replace("inf", "–")
        print(f"| {search} | {order} | {row} | {median} | {most:.0f} |")


if __name__ == "__main__":
    main()
