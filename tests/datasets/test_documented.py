"""What docs/guides/datasets.md shows works as it is written there; and what is missing says what to install."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cmalight.datasets import datasets, load_dataset

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "datasets.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_shown_runs(code: str) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["data"].x_train.max() == 1


def test_the_toml_shown_describes_a_shop(tmp_path: Path) -> None:
    (toml,) = blocks("toml")
    (tmp_path / "shop.csv").write_text("id,colour,size,price\n1,red,3,10\n2,blue,4,20\n3,blue,5,30\n4,red,6,40\n")
    (tmp_path / "shop.toml").write_text(toml, encoding="utf-8")
    assert load_dataset(tmp_path / "shop.toml").features == 3


def test_the_table_has_every_set_of_the_paper_with_its_numbers() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
    papers = [entry for entry in datasets() if entry.group in ("small", "big")]
    assert rows == [(entry.name, str(entry.rows), str(entry.training_rows), str(entry.d)) for entry in papers]


@pytest.mark.parametrize(("module", "name"), [("pandas", "shop.toml"), ("sklearn.datasets", "wine")])
def test_a_missing_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    (tmp_path / "shop.toml").write_text('[dataset]\nfile = "shop.csv"\ntarget = "y"\ntask = "regression"\n')
    (tmp_path / "shop.csv").write_text("x,y\n1,2\n3,4\n")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImportError, match=r'pip install "cmalight\[data\]"'):
        load_dataset(name)
