"""SOAP under DDP and FSDP2, in two processes with gloo: the same weights as in one process."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from cmalight.optim.soap import SOAP

OPTIONS = {"lr": 1e-2, "weight_decay": 0.1, "refresh_interval": 3, "max_side": 16}


def make_model() -> nn.Module:
    """Some rows cannot be divided by two ranks; (20, 18) and (1, 18) are stepped by Adam.

    All factors but one have full rank and that one lacks one, so that rounding cannot choose among eigenvectors.
    """
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(27, 10), nn.Tanh(), nn.Linear(10, 20), nn.Tanh(),
        nn.Linear(20, 18), nn.Tanh(), nn.Linear(18, 1),
    ).double()  # fmt: skip


def make_batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(64, 1, 4, 4, generator=generator, dtype=torch.float64) for _ in range(11)]


def train(model: nn.Module, optimizer: SOAP, batches: list[torch.Tensor], rank: int | None = None) -> None:
    """The gradient of the mean loss, by all rows or by this rank's half."""
    for batch in batches:
        rows = batch if rank is None else batch[32 * rank : 32 * rank + 32]
        optimizer.zero_grad()
        (model(rows) - rows.sum((1, 2, 3))[:, None].sin()).square().mean().backward()
        optimizer.step()


def whole(params) -> list[torch.Tensor]:
    return [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in params]


def assert_close(params, others) -> None:
    for param, other in zip(whole(params), whole(others), strict=True):
        torch.testing.assert_close(param, other, rtol=0, atol=1e-9)


def sharded_model() -> nn.Module:
    model = make_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    return model


def check(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    try:
        batches = make_batches()
        alone = make_model()
        train(alone, SOAP(alone.parameters(), **OPTIONS), batches)

        copied = DistributedDataParallel(make_model())
        train(copied, SOAP(copied.parameters(), **OPTIONS), batches, rank)
        assert_close(copied.parameters(), alone.parameters())

        sharded = sharded_model()
        optimizer = SOAP(sharded.parameters(), **OPTIONS)
        train(sharded, optimizer, batches[:5], rank)
        saved = copy.deepcopy(sharded.state_dict())
        dcp.save({"optimizer": get_optimizer_state_dict(sharded, optimizer)}, checkpoint_id=f"{folder}/checkpoint")
        train(sharded, optimizer, batches[5:], rank)
        assert_close(sharded.parameters(), alone.parameters())

        resumed = sharded_model()
        resumed.load_state_dict(saved)
        other = SOAP(resumed.parameters(), **OPTIONS)
        loaded = {"optimizer": get_optimizer_state_dict(resumed, other)}
        dcp.load(loaded, checkpoint_id=f"{folder}/checkpoint")
        set_optimizer_state_dict(resumed, other, loaded["optimizer"])
        train(resumed, other, batches[5:], rank)
        for param, twin in zip(resumed.parameters(), sharded.parameters(), strict=True):
            assert torch.equal(param.to_local(), twin.to_local())

        gathered, adam = sharded[2].weight, sharded[6].weight
        assert not isinstance(optimizer.state[gathered]["exp_avg"], DTensor)
        assert isinstance(optimizer.state[adam]["exp_avg"], DTensor)
        Path(folder, f"done{rank}").touch()
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_the_weights_of_one(tmp_path):
    mp.spawn(check, args=(str(tmp_path),), nprocs=2)
    assert (tmp_path / "done0").exists()
    assert (tmp_path / "done1").exists()
