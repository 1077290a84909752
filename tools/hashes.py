"""Writes the hashes of the pinned packages: `python tools/hashes.py INDEX`.

INDEX is the address of a package index (the part before `/numpy/`). Every pin of constraints.txt gets the sha256 of all
its files there, for every platform.
"""

import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
LINK = re.compile(r'href="(?:[^"#]*/)?([^"#/]+)#sha256=([0-9a-f]{64})"')


def belongs_to(pin: Requirement, filename: str) -> bool:
    """Whether a file is of the pinned version."""
    parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
    try:
        name, version, *_ = parse(filename)
    except ValueError:
        return False  # pip does not take this kind of file, or not this form of its name
    return name == canonicalize_name(pin.name) and pin.specifier.contains(version, prereleases=True)


def hashes(pin: Requirement, index: str) -> list[str]:
    """The hashes of all files of one pin."""
    address = f"{index.rstrip('/')}/{canonicalize_name(pin.name)}/"
    with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": "text/html"}), timeout=60) as page:
        listed = LINK.findall(page.read().decode())
    found = {value for filename, value in listed if belongs_to(pin, unquote(filename))}
    if not found:
        raise SystemExit(f"{pin}: {address} has no file of this version. Change the pin.")
    return sorted(found)


def with_hashes(text: str, index: str) -> str:
    """The comments and pins of a file as they are, and the hashes of today."""

    def entry(line: str) -> str:
        if line.startswith("#"):
            return line + "\n"
        values = hashes(Requirement(line), index)
        return " \\\n".join([line, *(f"    --hash=sha256:{value}" for value in values)]) + "\n"

    lines = [line.rstrip(" \\") for line in text.splitlines() if "--hash=" not in line]
    with ThreadPoolExecutor(8) as pool:
        return "".join(pool.map(entry, lines))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    CONSTRAINTS.write_text(with_hashes(CONSTRAINTS.read_text(), sys.argv[1]))
