"""Compiled epochs never train another thing than eager ones: what cannot be followed is refused, or noticed."""

import pytest
import torch
from torch import nn

from cmalight import fit
from cmalight.evaluation import larger_batches
from tests.training.common import needs_compiler

pytestmark = needs_compiler


def words(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 7, (64, 4), generator=generator), torch.randint(0, 3, (64,), generator=generator)


@pytest.mark.parametrize("wrong", ["row", "far row", "class"])
def test_an_index_out_of_range_is_an_error_as_in_eager_epochs(wrong, monkeypatch):
    monkeypatch.setattr(larger_batches, "_SAMPLES", 20)  # or the last row would be among those that are recorded
    x, y = words()
    if wrong == "class":
        y[-1] = 7
    else:
        x[-1, 1] = 9 if wrong == "row" else 10**9
    for engine in ("eager", "compiled"):
        network = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 3))
        with pytest.raises(IndexError, match="out of"):
            fit(network, nn.CrossEntropyLoss(), (x, y), optimizer="adam", batch_size=10, max_epochs=1,
                progress=False, engine=engine)  # fmt: skip
