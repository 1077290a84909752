"""TensorBatches: the order and the batches."""

import pytest
import torch

from cmalight import TensorBatches


def rows(batches):
    return [batch[0][:, 0].long().tolist() for batch in batches]


def numbered(count=10, **options):
    x = torch.arange(count, dtype=torch.float64).unsqueeze(1)
    return TensorBatches(x, 10 * x, **options)


def test_fixed_order_gives_the_samples_as_they_are_and_a_short_last_batch():
    batches = numbered(batch_size=4, order="fixed")
    assert rows(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert rows(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(batches) == 3


def test_reshuffling_visits_every_sample_once_and_keeps_pairs_together():
    batches = numbered(1000, batch_size=7)
    for _ in range(3):
        seen = []
        for x, y in batches:
            assert torch.equal(y, 10 * x)
            seen += x[:, 0].tolist()
        assert sorted(seen) == list(range(1000))


def test_an_epochs_order_depends_on_seed_and_epoch_alone():
    batches = numbered(50, batch_size=8, seed=3)
    first, second = rows(batches), rows(batches)
    assert first != second
    other = numbered(50, batch_size=8, seed=3)
    torch.manual_seed(99)
    other.set_epoch(1)
    assert rows(other) == second
    assert rows(numbered(50, batch_size=8, seed=4)) != first


def test_neighbouring_seeds_and_epochs_share_no_order():
    orders = {tuple(numbered(20, seed=seed).permutation(epoch).tolist()) for seed in range(30) for epoch in range(30)}
    assert len(orders) == 900


def test_it_draws_no_global_random_numbers():
    before = torch.get_rng_state()
    rows(numbered(50))
    assert torch.equal(torch.get_rng_state(), before)


def test_blocks_do_not_show():
    """Rows of 30,000 numbers are gathered few at a time."""
    x = torch.arange(103.0).unsqueeze(1)
    wide = TensorBatches(x.expand(-1, 30_000), batch_size=2)
    assert rows(wide) == rows(TensorBatches(x, batch_size=2))


@pytest.mark.parametrize(
    ("tensors", "options", "message"),
    [
        ([], {}, "equal length"),
        ([torch.ones(3), torch.ones(4)], {}, r"lengths \[3, 4\]"),
        ([torch.ones(0)], {}, "at least one sample"),
        ([torch.ones(3)], {"batch_size": 0}, "batch_size"),
        ([torch.ones(3)], {"order": "random"}, "expected one of fixed, reshuffle"),
    ],
)
def test_bad_arguments_are_refused(tensors, options, message):
    with pytest.raises(ValueError, match=message):
        TensorBatches(*tensors, **options)
