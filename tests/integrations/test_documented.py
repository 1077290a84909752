"""docs/guides/integrations.md says what is there, and its code runs."""

import inspect
import re
from pathlib import Path

import pytest

from cmalight import CMALightClassifier, CMALightRegressor

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "integrations.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_library_has_a_few_lines():
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == [
        "Lightning",
        "Accelerate",
        "Weights & Biases, MLflow, any tracker",
        "scikit-learn",
    ]
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        lines = [line for line in block.splitlines() if line.strip() and not re.match(r"(from|import) ", line)]
        assert len(lines) <= 11


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_the_code_runs_as_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(block, names)
    assert names["epoch"].report is not None
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.9


@pytest.mark.parametrize("estimator", [CMALightClassifier, CMALightRegressor])
def test_every_argument_of_the_estimators_is_described(estimator):
    names = set(inspect.signature(estimator).parameters) - {"verbose"}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
