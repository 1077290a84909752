"""Parquet files: their size in memory is known from their metadata before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cmalight.errors import DataError, needed
from cmalight.files import refuse_larger
from cmalight.tables.from_frame import table_from_frame
from cmalight.tables.table import Reading, Table, refuse_wide

_NUMBER = 8  # bytes of a cell in memory


def read_parquet(path: Path, reading: Reading) -> Table:
    """A parquet file with columns of numbers or text.

    Raises:
        DataError: it is damaged, holds something else, or would take too much memory.
    """
    with needed(f"{path} needs pandas and pyarrow", "cli"):
        import pandas
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check(path, file, pyarrow.types)
        # Texts stay in their dictionary: a long one that is repeated is held once.
        texts = [field.name for field in file.schema_arrow if _is_text(field.type, pyarrow.types)]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            frame = pandas.DataFrame(file.read().to_pandas())
    except DataError:
        raise
    except Exception as error:  # damaged bytes make the reader raise almost anything
        raise DataError(f"{path} is not a complete parquet file: it may be cut off, or of another type") from error
    return table_from_frame(frame, path, reading, "parquet")


def _check(path: Path, file: Any, types: Any) -> None:
    """What the metadata says: how many columns and values there are, and of what kind."""
    metadata = file.metadata
    refuse_wide(path, metadata.num_columns)
    for field in file.schema_arrow:
        if types.is_nested(field.type):
            raise DataError(
                f"{path}: column {field.name!r} holds {field.type}; make numbers or text of it, or leave it out"
            )
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    refuse_larger(path, sum(max(group.total_byte_size, 0) for group in groups), error=DataError)
    widths = [max(_NUMBER, metadata.schema.column(index).length) for index in range(metadata.num_columns)]
    refuse_larger(path, metadata.num_rows * sum(widths), error=DataError)


def _is_text(kind: Any, types: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))
