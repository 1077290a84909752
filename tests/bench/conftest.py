"""No test leaves anything in the user's cache."""

import pytest


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
