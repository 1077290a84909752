"""The studies beside the documents: their specs are valid, and their workloads train."""

from pathlib import Path

import pytest
import torch

from cmalight.bench import plan, read_spec, train
from cmalight.bench.code import imported
from tests.bench.common import spec
from tests.helpers import needs_muon

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
SOURCE = STUDIES / "workloads.py"
NAMES = ("resnet_digits", "finetune", "denoiser", "gpt", "vit", "lstm", "mlp", "mlp_bad_batches", "mlp_label_noise")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=needs_muon) if "muon" in path.read_text() else path.stem
        for path in sorted(STUDIES.glob("*.toml"))
    ],
)
def test_every_spec_can_be_used(name):
    read_spec(STUDIES / f"{name}.toml")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_workload_is_trained(name):
    chosen = spec(datasets=[], networks=[], workloads=[f"{SOURCE}:{name}"], epochs=1, solvers=["adam"])
    result = train(plan(chosen)[0], warm_up=False)
    assert (result.status, result.error) == ("done", None)
    assert result.points.train_loss[-1] < result.points.train_loss[0]


def first_layer(name):
    return imported(f"{SOURCE}:{name}")().make_model()[0]


def test_bad_batches_are_seen_by_training_steps_alone():
    layer = first_layer("mlp_bad_batches")
    layer.every = 1
    x = torch.ones(2, 2)
    assert layer(x).tolist() == (x * 1e4).tolist()
    with torch.no_grad():
        assert layer(x).tolist() == x.tolist()
    assert layer.eval()(x).tolist() == x.tolist()
