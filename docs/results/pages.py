"""What the scripts that write numbers into pages share."""

import re
from collections.abc import Callable

import pandas as pd


def filled(page: str, blocks: dict[str, Callable[[pd.DataFrame], str]], runs: pd.DataFrame) -> str:
    """A page with its blocks, between `<!-- name -->` and `<!-- end -->`, written anew."""
    for name, block in blocks.items():
        text = f"<!-- {name} -->\n{block(runs)}\n<!-- end -->"
        between = rf"<!-- {name} -->\n.*?<!-- end -->"
        page = re.sub(between, lambda _, t=text: t, page, flags=re.DOTALL)
    return page
