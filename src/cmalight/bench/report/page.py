"""The page: one file with everything in it, which asks nothing of the network."""

from __future__ import annotations

import html
import importlib
import re
from pathlib import Path
from typing import Any

from cmalight.bench.report.packing import embedded_json
from cmalight.errors import needed

_SCRIPTS = ("compute.js", "plots.js", "tables.js", "page.js")


def page(data: dict[str, Any]) -> str:
    """The HTML of `content.page_data`."""
    parts = {
        "title": html.escape(f"{data['title']}: solvers compared"),
        "style": _asset("page.css"),
        "plotly": _plotly(),
        "data": embedded_json(data),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (Path(__file__).with_name("assets") / name).read_text(encoding="utf-8")


def _plotly() -> str:
    with needed("the report needs plotly", "bench"):
        offline = importlib.import_module("plotly.offline")
    return str(offline.get_plotlyjs())
