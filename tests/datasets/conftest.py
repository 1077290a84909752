"""Every test has a cache of its own and no data folder, whatever the environment says."""

import pytest

from cmalight.datasets import registry


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CMALIGHT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("CMALIGHT_DATA", str(folder))
    return folder
