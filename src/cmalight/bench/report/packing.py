"""Arrays inside a JSON document: base64 of the smallest type that holds them, which the page's script unpacks."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

Packed = dict[str, Any]
_WHOLE = ((np.uint8, "u1"), (np.uint16, "u2"), (np.uint32, "u4"))
_MISSING = 65_535


def packed(values: npt.ArrayLike) -> Packed:
    """Whole numbers from 0 on exactly, others in single precision."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        largest = int(array.max()) if array.size else 0
        for kind, name in _WHOLE:
            if largest <= np.iinfo(kind).max:
                return _coded(name, array.astype(kind))
    return _coded("f4", array.astype("<f4"))


def drawn(values: npt.ArrayLike, *, log: bool) -> Packed:
    """Numbers that are only drawn, in 16 bits over their range; what is not finite, or not positive, is missing."""
    array = np.asarray(values, dtype=np.float64)
    usable = np.isfinite(array) & (array > 0) if log else np.isfinite(array)
    scaled = np.log(array, where=usable, out=np.zeros_like(array)) if log else np.where(usable, array, 0.0)
    low, high = (float(scaled[usable].min()), float(scaled[usable].max())) if usable.any() else (0.0, 0.0)
    steps = np.rint((scaled - low) / (high - low or 1.0) * (_MISSING - 1))
    coded = _coded("u2", np.where(usable, steps, _MISSING).astype("<u2"))
    return {**coded, "low": low, "high": high, "log": log}


def embedded_json(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin another."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain_number(value: Any) -> float | str | None:
    """JSON has neither NaN, which becomes null, nor inf."""
    number = float(value)
    if number != number:
        return None
    return "inf" if number == float("inf") else number


def _coded(name: str, array: npt.NDArray[Any]) -> Packed:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {"type": name, "data": base64.b64encode(np.ascontiguousarray(little).tobytes()).decode()}
