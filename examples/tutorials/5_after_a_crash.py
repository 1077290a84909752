"""
Going on after a crash
======================

``fit(..., checkpoint="run.pt")`` saves between epochs, and the same call goes on from the file it
finds. Here the process is killed in the middle, as a power cut would do it, and started again.
"""

# %%
# The script. Its second argument is the epoch after which the process kills itself; the history
# goes into a file that grows with the run.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

folder = Path(tempfile.mkdtemp())
(folder / "train.py").write_text("""
import os, signal, sys
import torch
from torch import nn
from cmalight import fit
from cmalight.datasets.generated import teacher_network

checkpoint, last = sys.argv[1], int(sys.argv[2])

class PowerCut:
    def on_epoch_end(self, record):
        if record.epoch == last:
            os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(0)
x, y = teacher_network(2000, 8, noise=0.05)
model = nn.Sequential(nn.Linear(8, 20), nn.Dropout(0.1), nn.Tanh(), nn.Linear(20, 1))
result = fit(model, nn.MSELoss(), (x, y), max_epochs=12, checkpoint=checkpoint,
             checkpoint_seconds=0, history_file=checkpoint + ".jsonl",
             callbacks=[PowerCut()], engine="eager")
print(result)
print("resumed after", result.resumed_at, "epochs; last loss", result.history[-1].f_tilde)
torch.save(model.state_dict(), checkpoint + ".weights")
""")


def train(checkpoint, last):
    command = [sys.executable, "train.py", checkpoint, str(last)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    print("exit code", done.returncode)
    print(done.stdout)


# %%
# The first call dies after epoch 6: the exit code is that of ``kill -9``, and nothing is printed.
# What it leaves is the checkpoint, the one before it, and the history so far.


def losses(checkpoint):
    lines = (folder / f"{checkpoint}.jsonl").read_text().splitlines()
    return [json.loads(line)["f_tilde"] for line in lines]


train("run.pt", last=6)
before = losses("run.pt")
print(sorted(path.name for path in folder.iterdir()))

# %%
# The same call again. It finds the checkpoint and does the rest.

train("run.pt", last=-1)

# %%
# Is it the run that it would have been? One that was never interrupted, for comparison.

train("whole.pt", last=-1)

resumed = torch.load(folder / "run.pt.weights")
whole = torch.load(folder / "whole.pt.weights")
same = all(torch.equal(resumed[name], whole[name]) for name in whole)
print("the same weights, bit for bit:", same)

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.semilogy(losses("whole.pt"), color="0.8", lw=7, label="never interrupted")
axes.semilogy(losses("run.pt"), "o-", label="the same call again")
axes.semilogy(before, "o-", color="tab:red", label="until it was killed")
axes.set(xlabel="epoch", ylabel="training loss of the epoch")
axes.legend()
plt.show()

# %%
# The weights, Adam's moments, the control, the order of the batches and the masks of the dropout
# are all in the checkpoint. What is promised, and for which loaders, and how to save in a loop of
# your own: :doc:`/guides/checkpoints`.
