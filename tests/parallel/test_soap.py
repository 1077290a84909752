"""SOAP under DDP and FSDP2: the same weights as in one process."""

import copy

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from cmalight import SOAP

from .processes import needs_shards_on_the_cpu, on_ranks

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


def assert_close(params, others) -> None:
    for param, other in zip(params, others, strict=True):
        whole = param.full_tensor() if isinstance(param, DTensor) else param.detach()
        torch.testing.assert_close(whole, other.detach(), rtol=0, atol=1e-9)


def _check(rank, folder):
    batches = make_batches()
    alone = make_model()
    train(alone, SOAP(alone.parameters(), **OPTIONS), batches)

    copied = DistributedDataParallel(make_model())
    train(copied, SOAP(copied.parameters(), **OPTIONS), batches, rank)
    assert_close(copied.parameters(), alone.parameters())

    sharded = fully_shard(make_model())
    optimizer = SOAP(sharded.parameters(), **OPTIONS)
    train(sharded, optimizer, batches[:5], rank)
    saved = copy.deepcopy(sharded.state_dict())
    dcp.save({"optimizer": get_optimizer_state_dict(sharded, optimizer)}, checkpoint_id=folder)
    train(sharded, optimizer, batches[5:], rank)
    assert_close(sharded.parameters(), alone.parameters())

    resumed = fully_shard(make_model())
    resumed.load_state_dict(saved)
    other = SOAP(resumed.parameters(), **OPTIONS)
    loaded = {"optimizer": get_optimizer_state_dict(resumed, other)}
    dcp.load(loaded, checkpoint_id=folder)
    set_optimizer_state_dict(resumed, other, loaded["optimizer"])
    train(resumed, other, batches[5:], rank)
    for param, twin in zip(resumed.parameters(), sharded.parameters(), strict=True):
        assert torch.equal(param.to_local(), twin.to_local())

    gathered, adam = sharded[2].weight, sharded[6].weight
    return isinstance(optimizer.state[gathered]["exp_avg"], DTensor), isinstance(
        optimizer.state[adam]["exp_avg"], DTensor
    )


@needs_shards_on_the_cpu
def test_two_processes_give_the_weights_of_one(tmp_path):
    """Where a factor needs the whole gradient, the state is gathered; Adam's stays in shards."""
    assert on_ranks(_check, tmp_path, tmp_path / "checkpoint") == [(False, True)] * 2
