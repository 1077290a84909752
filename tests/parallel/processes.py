"""Real processes that talk over gloo on the loopback device, each with a deadline."""

import datetime
import multiprocessing
import os
import time
import traceback

import pytest
import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
# The first optimizer of a process imports torch._dynamo: with it preloaded, a process starts in no time.
_CONTEXT.set_forkserver_preload(["torch._dynamo", "cmalight.optim", "cmalight.evaluation.objective", __name__])
_SECONDS = 600  # for what hangs, not for slow machines

needs_shards_on_the_cpu = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="fully_shard of this torch needs an accelerator"
)


def on_ranks(function, folder, *arguments, size=2):
    """What `function(rank, *arguments)` returned on each rank; an error on one of them is raised here."""
    processes = [
        _CONTEXT.Process(target=_rank, args=(function, rank, size, folder, arguments), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + _SECONDS
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        hanging = [process for process in processes if process.is_alive()]
        for process in hanging:
            process.kill()
            process.join()
    results = [_read(folder / f"rank{rank}.pt") for rank in range(size)]
    errors = [text for kind, text in results if kind == "error"]
    assert not errors, "\n".join(errors)
    assert not hanging, "a rank was still waiting"
    assert [process.exitcode for process in processes] == [0] * size
    return [value for _, value in results]


def _read(path):
    return torch.load(path, weights_only=False) if path.exists() else ("error", f"{path.stem} left no result")


def _rank(function, rank, size, folder, arguments):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=_SECONDS / 2),
    )
    try:
        result = ("value", function(rank, *arguments))
    except BaseException:
        result = ("error", f"rank {rank}: {traceback.format_exc()}")
    torch.save(result, folder / f"rank{rank}.pt")
    dist.destroy_process_group()
