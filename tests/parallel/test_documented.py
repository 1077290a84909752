"""The page on several processes runs as it stands, on two of them."""

import re
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from cmalight import Auto, Objective
from tests.helpers import table

from .processes import needs_shards_on_the_cpu, on_ranks

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "distributed.md"


def _page(_):
    """DDP's block and FSDP2's."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    blocks[0] = blocks[0].removeprefix('dist.init_process_group("gloo")\n')  # done already
    loop = "for _ in range(epochs):\n    for x, y in loader:\n        loss = loss_fn(model(x), y)\n"
    loop += "        loss.backward()\n        optimizer.step(loss)\n        optimizer.zero_grad()\n"
    final = []
    for code in (blocks[0] + loop, blocks[1] + loop):
        torch.manual_seed(0)
        dataset = TensorDataset(*(part.float() for part in table(400)))
        sampler = DistributedSampler(dataset)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
        names = {
            "dist": dist, "DistributedSampler": DistributedSampler, "DataLoader": DataLoader,
            "fully_shard": fully_shard, "DistributedDataParallel": DistributedDataParallel,
            "Auto": Auto, "Objective": Objective, "torch": torch,
            "dataset": dataset, "sampler": sampler, "loader": DataLoader(dataset, batch_size=64, sampler=sampler),
            "model": model, "layers": [model[0], model[2]], "loss_fn": nn.MSELoss(), "epochs": 3,
        }  # fmt: skip
        exec(code, names)
        final.append(names["optimizer"].report)
    return final


@needs_shards_on_the_cpu
def test_the_pages_blocks_run_and_decide_alike_on_both_ranks(tmp_path):
    first, second = on_ranks(_page, tmp_path)
    assert first == second
    assert first[0].outcome is first[1].outcome
    assert abs(first[0].loss - first[1].loss) < 1e-3
