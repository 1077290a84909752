"""From a pandas frame to a table: numbers stay numbers, everything else is text or refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cmalight.errors import DataError
from cmalight.files import refuse_larger
from cmalight.tables.table import Column, Reading, Table, check_names, number_name, object_array

if TYPE_CHECKING:
    import pandas

_TEXT_CELL = 64  # bytes of a short text in memory


def table_from_frame(frame: pandas.DataFrame, path: Path, reading: Reading, layout: str) -> Table:
    """The columns of a frame.

    Args:
        frame: as pandas read it.
        path: of its file, for messages.
        reading: says which columns are text.
        layout: how the file was read, in words.

    Raises:
        DataError: a column is neither numbers nor text, or there is too much text.
    """
    from pandas.api import types

    names = [str(name) for name in frame.columns]
    check_names(path, names)
    series = [column for _, column in frame.items()]
    texts = sum(not types.is_numeric_dtype(column.dtype) for column in series)
    refuse_larger(path, texts * len(frame) * _TEXT_CELL, error=DataError)
    return Table(
        str(path), tuple(_column(path, name, one, reading) for name, one in zip(names, series, strict=True)), layout
    )


def _column(path: Path, name: str, series: pandas.Series[Any], reading: Reading) -> Column:
    """Numbers as float64; booleans, text and what is named in `as_text` as text."""
    from pandas.api import types

    if types.is_complex_dtype(series.dtype):
        raise DataError(f"{path}: column {name!r} holds {series.dtype}; make numbers or text of it, or leave it out")
    if types.is_datetime64_any_dtype(series.dtype):
        series = series.dt.strftime("%Y-%m-%d %H:%M:%S")  # which is recognised as a date again
    if types.is_numeric_dtype(series.dtype) and not types.is_bool_dtype(series.dtype):
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return Column(name, _texts(numbers) if name in reading.as_text else numbers)
    cells = _cells(series)
    if any(isinstance(cell, Decimal) for cell in cells):
        return Column(name, np.array([np.nan if cell is None else float(cell) for cell in cells]))
    cells = [cell.isoformat() if type(cell) is date else cell for cell in cells]
    for cell in cells:
        if not isinstance(cell, str | bool | int | float | None):
            raise DataError(
                f"{path}: column {name!r} holds {type(cell).__name__}; make numbers or text of it, or leave it out"
            )
    return Column(name, object_array(None if cell is None else str(cell).strip() or None for cell in cells))


def _cells(series: pandas.Series[Any]) -> list[Any]:
    """The values, None where one is missing; a text that is repeated in categories is one object."""
    import pandas

    if isinstance(series.dtype, pandas.CategoricalDtype):
        categories = [*series.cat.categories.tolist(), None]  # the code of a missing cell is -1
        return [categories[code] for code in series.cat.codes.tolist()]
    missing = pandas.isna(series.array)
    return [None if gone else cell for cell, gone in zip(series.tolist(), missing, strict=True)]


def _texts(numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    return object_array(None if np.isnan(number) else number_name(number) for number in numbers)
