"""Arrays in npz files: features by number, a target by name; sizes are known before anything is unpacked."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError
from cmalight.files import refuse_larger
from cmalight.tables.table import Column, Reading, Table, listed, object_array, refuse_wide

_NUMBER = 8  # bytes of a number in memory
_TEXT = 64  # bytes of a short text


def read_npz(path: Path, reading: Reading) -> Table:
    """The features `x` (or the only other matrix) of an npz file, and the target if it is there.

    Raises:
        DataError: the file is damaged, holds something else, or would take too much memory.
    """
    try:
        arrays = _arrays(path)
    except DataError:
        raise
    except Exception as error:  # damaged archives and headers make the readers raise almost anything
        why = "it may be cut off, of another type, or hold Python objects"
        raise DataError(f"{path} is not a complete npz file of plain arrays: {why}") from error
    features = _feature_array(path, arrays, reading.target)
    columns = [Column(f"x{index}", features[:, index]) for index in range(features.shape[1])]
    if reading.target in arrays:
        target = arrays[reading.target].squeeze()
        if target.shape != (len(features),):
            raise DataError(
                f"{path}: array {reading.target!r} has shape {arrays[reading.target].shape}; "
                f"expected one value for each of the {len(features)} rows of the features"
            )
        columns.append(_target_column(path, reading, target))
    return Table(str(path), tuple(columns), "npz")


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Every array of the file, once the archive's directory and the arrays' headers say that they fit."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        refuse_larger(path, sum(archive.getinfo(name).file_size for name in names), error=DataError)
        sizes = []
        for name in names:
            with archive.open(name) as member:
                sizes.append(_size(member))
        refuse_larger(path, sum(sizes), error=DataError)
    with path.open("rb") as stream:  # NumPy would leave it open where it fails
        file = np.load(stream, allow_pickle=False)
        return {name: file[name] for name in file.files}


def _size(member: IO[bytes]) -> int:
    """What an array takes as numbers, by its header."""
    version = np.lib.format.read_magic(member)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(member)
    if any(length < 0 for length in shape):
        raise ValueError("a negative length")
    return math.prod(shape) * max(dtype.itemsize, _NUMBER if dtype.kind in "biuf" else _TEXT)


def _feature_array(path: Path, arrays: dict[str, npt.NDArray[Any]], target: str) -> npt.NDArray[np.float64]:
    others = {name: array for name, array in arrays.items() if name != target}
    flat = [name for name, array in others.items() if array.ndim == 2]
    name = "x" if "x" in others else flat[0] if len(flat) == 1 else None
    if name is None:
        raise DataError(f"{path} holds the arrays {listed(arrays)}; expected the features in one named 'x'")
    array = others[name]
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{path}: array {name!r} has shape {array.shape}; expected (rows, features)")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path}: array {name!r} holds {array.dtype}; expected numbers")
    refuse_wide(path, array.shape[1])
    return array.astype(np.float64)


def _target_column(path: Path, reading: Reading, target: npt.NDArray[Any]) -> Column:
    if target.dtype.kind in "USb":
        return Column(reading.target, object_array(str(cell) or None for cell in target.astype(str)))
    if target.dtype.kind not in "iuf":
        raise DataError(f"{path}: array {reading.target!r} holds {target.dtype}; expected numbers or text")
    return Column(reading.target, target.astype(np.float64))
