"""DistributedDataParallel: `torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/ddp.py`.

The loop is that of one process. torchrun restarts all processes when one dies; training resumes from the checkpoint
bit for bit. Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for restarts: without it torchrun (seen in torch 2.13) may give
the new processes the addresses of the dead ones.
"""

import argparse
import datetime
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from cmalight import Auto, Objective


def save(path: Path, **content: object) -> None:
    """Rank 0 writes; the file is whole or not there."""
    if dist.get_rank() == 0:
        torch.save(content, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("ddp.pt"))
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(0)
    inputs = torch.randn(4000, 10)
    target = torch.tanh(inputs @ torch.randn(10, 1)) + 0.05 * torch.randn(4000, 1)
    dataset = TensorDataset(inputs, target)
    sampler = DistributedSampler(dataset, seed=0)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)  # per rank: 128 samples per step on two ranks
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1)))
    loss_fn = nn.MSELoss()

    objective = Objective(model, loss_fn, loader)
    optimizer = Auto(model, objective=objective, total_steps=arguments.epochs * len(loader))
    first = 0
    if arguments.checkpoint.exists():
        saved = torch.load(arguments.checkpoint, weights_only=True)  # on every rank
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epochs"]
    for epoch in range(first, arguments.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
        save(arguments.checkpoint, model=model.state_dict(), optimizer=optimizer.state_dict(), epochs=epoch + 1)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}  {optimizer.report}", flush=True)
    final = objective()  # on every rank
    if dist.get_rank() == 0:
        print(f"final loss {final:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
