"""The page on several ranks runs as it stands, on two of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from cmalight import Controlled, Objective
from tests.helpers import table
from tests.test_documents import python_blocks

from .processes import on_ranks


def _page(_):
    """DDP's block and FSDP2's, each before the loop of the page on loops."""
    ddp, fsdp2 = python_blocks("docs/guides/distributed.md")[:2]
    ddp = ddp.removeprefix('dist.init_process_group("gloo")\n')  # done already
    loop = python_blocks("docs/guides/loop.md")[0]
    loop = loop[loop.index("for _ in range(epochs):") :]
    final = []
    for code in (ddp + loop, fsdp2 + loop):
        torch.manual_seed(0)
        dataset = TensorDataset(*(part.float() for part in table(400)))
        sampler = DistributedSampler(dataset)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
        names = {
            "dist": dist, "DistributedSampler": DistributedSampler, "DataLoader": DataLoader,
            "fully_shard": fully_shard,
            "DistributedDataParallel": DistributedDataParallel, "Controlled": Controlled,
            "Objective": Objective, "torch": torch,
            "dataset": dataset, "sampler": sampler, "loader": DataLoader(dataset, batch_size=64, sampler=sampler),
            "model": model, "layers": [model[0], model[2]], "loss_fn": nn.MSELoss(), "epochs": 3,
        }  # fmt: skip
        exec(code, names)
        final.append(names["epoch"].report)
    return final


def test_the_pages_blocks_for_ddp_and_fsdp2_run_and_agree(tmp_path):
    (first, sharded), others = on_ranks(_page, tmp_path)
    assert [first, sharded] == others
    assert first.f_tilde < 0.3
    assert abs(first.f_tilde - sharded.f_tilde) < 1e-5
