"""
Two processes with torchrun
===========================

The loop of one process, on two of them with DistributedDataParallel. The ranks exchange their
losses and take one decision: both keep an epoch, or both undo it.
"""

# %%
# The script that every process runs. Against a loop in one process the new lines are those of any
# DDP script: the process group, the sampler, the wrapped model. The lists are for the picture
# below.

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

folder = Path(tempfile.mkdtemp())
(folder / "train.py").write_text("""
import json
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from cmalight import Controlled, Objective
from cmalight.datasets.generated import teacher_network

dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = TensorDataset(*teacher_network(2000, 8, noise=0.05))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)  # of each rank: 64 in all
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)))
optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15), max_epochs=5)
objective = Objective(model, nn.MSELoss(), loader)
own, common, reports = [], [], []
for number in range(5):
    sampler.set_epoch(number)
    losses = []
    with optimizer.epoch(objective) as epoch:
        for x, y in epoch.batches(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            epoch.observe(loss, len(y))
            optimizer.step()
            losses.append(loss.item())
    own.append(sum(losses) / len(losses))
    common.append(epoch.report.f_tilde)
    reports.append(str(epoch.report))
final = objective()  # on every rank: the evaluation is shared out
if dist.get_rank() == 0:
    print(*reports, f"loss over all the data: {final:.6f}", sep="\\n", flush=True)
with open(f"rank{dist.get_rank()}.json", "w") as file:
    json.dump({"own": own, "common": common, "reports": reports}, file)
dist.destroy_process_group()
""")

# %%
# ``torchrun --standalone --nproc-per-node 2 train.py`` in a shell; from Python it is a module of
# torch.

torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2 train.py"
done = subprocess.run(
    [sys.executable, *torchrun.split()],
    cwd=folder,
    env={**os.environ, "OMP_NUM_THREADS": "1"},
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)

# %%
# Each rank has seen the losses of its own half of the data. What is reported is the mean over both
# halves, and what is judged is a sample of both: so both report the same figures and the same
# outcome in every epoch.

ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
print("the same reports on both:", ranks[0]["reports"] == ranks[1]["reports"])

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for rank, seen in enumerate(ranks):
    axes.semilogy(seen["own"], "o--", label=f"what rank {rank} saw")
axes.semilogy(ranks[0]["common"], "ko-", label="what both report")
axes.set(xlabel="epoch", ylabel="training loss of the epoch", xticks=range(5))
axes.legend()
plt.show()

# %%
# What differs with uneven batches, Join, FSDP2 and mixed precision: :doc:`/guides/distributed`.
