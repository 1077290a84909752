"""The random search for counter-examples (benchmarks/search_counterexamples.py), on some of its pairs."""

import pytest

from benchmarks.search_counterexamples import ORDERS, Pair, Ridge, parabola, random_pair, root, run


@pytest.mark.parametrize("order", ORDERS)
def test_certified_arrives_on_every_pair(order):
    ends = [run(random_pair(0, number), certified=True, order=order, epochs=20_000).end for number in range(150)]
    assert ends == ["arrived"] * 150


def parabola_and_root():
    """Beside the regularisation the two batches of docs/counterexamples.md."""
    return Pair([[Ridge(parabola, 1.0, [1.0], 0.0)], [Ridge(root, 12.0, [1.0], 0.0)]], [6.0], 0.5)


def two_centres(start):
    return Pair([[Ridge(parabola, 1.0, [1.0], -1.0)], [Ridge(parabola, 1.0, [1.0], 1.0)]], [start], 0.1)


def test_it_recognises_a_circle_and_a_stall():
    assert run(parabola_and_root(), certified=False, order="fixed", epochs=200).end == "circles"
    assert run(two_centres(0.1), certified=False, order="fixed", epochs=200).end == "stalled"
