"""FSDP2: `torchrun --standalone --nproc-per-node 2 examples/fsdp2.py`. No rank ever holds all the weights."""

import argparse
import datetime
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from cmalight import Controlled, Objective


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("fsdp2"), help="a folder")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(0)
    inputs = torch.randn(2000, 10)
    target = torch.tanh(inputs @ torch.randn(10, 1)) + 0.05 * torch.randn(2000, 1)
    dataset = TensorDataset(inputs, target)
    sampler = DistributedSampler(dataset, seed=0)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    model = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    loss_fn = nn.MSELoss()

    epochs = 10
    objective = Objective(model, loss_fn, loader)
    base = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimizer = Controlled(base, model, objective=objective, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}  {optimizer.report}", flush=True)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=arguments.checkpoint)  # each rank its shards
    final = objective()
    if dist.get_rank() == 0:
        print(f"final loss {final:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
