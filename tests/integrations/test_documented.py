"""The code of docs/guides/integrations.md runs as shown."""

import re
from pathlib import Path

import pytest

for library in ("lightning", "accelerate", "transformers"):
    pytest.importorskip(library)
PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "integrations.md"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed")
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_the_code_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    assert names["controlled"].report is not None
    assert names["watched"].report is not None
