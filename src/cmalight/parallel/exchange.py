"""A sum over ranks that leaves nothing behind in a thread of the backend's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

_SECONDS = 1.0  # to wait at most for a tensor to be free: microseconds as a rule, more on a busy machine


def begin_sum(tensor: Tensor, group: Any) -> Callable[[], None]:
    """Begins to sum `tensor` over the ranks, in place; what it returns is called once, and waits for the sum.

    A thread of gloo's lets go of the tensor a moment after the sum is known, by way of the interpreter. In an
    interpreter that is just ending this would abort the process (pytorch issue 190489), and the sum may be the last
    thing that a script does. So the wait is for that, too. The tensor's count of references shows it (in torch 2.13).
    """
    references = sys.getrefcount(tensor)
    work: Any = dist.all_reduce(tensor, group=group, async_op=True)

    def wait() -> None:
        nonlocal work
        work.wait()
        work = None  # it refers to the tensor, too
        if tensor.device.type == "cpu":
            deadline = time.monotonic() + _SECONDS
            while sys.getrefcount(tensor) > references and time.monotonic() < deadline:
                time.sleep(0)

    return wait
