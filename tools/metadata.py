"""What the index that publishes the package shows: README and addresses, for readers who have no files beside them.

Who the repository belongs to is known where it is published, by GitHub's own variable. With it, links and pictures of
the README lead to the files of the version's tag; without it, they are the words that they stand on.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def readable_anywhere(text: str, repository: str, version: str) -> str:
    """The README without links that lead to files beside it."""

    def lead(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not repository:
            return f"*(A picture in the repository: {words}.)*" if picture else words
        if picture:
            return f"![{words}](https://raw.githubusercontent.com/{repository}/v{version}/{path})"
        kind = "tree" if path.endswith("/") else "blob"
        return f"[{words}](https://github.com/{repository}/{kind}/v{version}/{path})"

    return RELATIVE.sub(lead, text)


def addresses(repository: str, version: str) -> dict[str, str]:
    """Where the source, its changes and its issues are."""
    if not repository:
        return {}
    root = f"https://github.com/{repository}"
    return {
        "Repository": root,
        "Changelog": f"{root}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{root}/issues",
    }


class PublishedMetadata(MetadataHookInterface):
    """Called by hatchling for sdist and wheel."""

    def update(self, metadata: dict) -> None:
        """Puts in what pyproject.toml calls dynamic."""
        repository, version = os.environ.get("GITHUB_REPOSITORY", ""), metadata["version"]
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readable_anywhere(text, repository, version),
        }
        metadata["urls"] = addresses(repository, version)
