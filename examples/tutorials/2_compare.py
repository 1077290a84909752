"""
Comparing optimizers on your own problem
========================================

Which optimizer is best *here*? The test-bed runs data sets x networks x solvers x seeds, each
run in a process of its own from the same start on the same batches, and keeps one file per run.
A comparison that was stopped resumes where it was.
"""

# %%
# Your data: a CSV file.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas

from cmalight import bench

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)
x = random.normal(size=(1200, 5))
y = np.sin(x[:, 0]) * x[:, 1] + 0.3 * x[:, 2] ** 2 + random.normal(0, 0.05, 1200)
mine = pandas.DataFrame(x, columns=list("abcde")).assign(y=y)
mine.to_csv(folder / "mine.csv", index=False)

# %%
# What to compare. An optimizer of your own would be ``"file.py:name"``. The same file works with
# ``cmalight bench run spec.toml --out results``.

(folder / "spec.toml").write_text("""
datasets = ["mine.csv:target=y"]
networks = ["1x50"]
solvers = ["auto", "adam", "adamw-cosine", "cmalight"]
seeds = 2
epochs = 30
batch_size = 32
""")
print(bench.run(folder / "spec.toml", folder / "results", workers=2))

# %%
# The results
# ----------------------
# Two frames: one row per run, one row per measured point.

results = bench.load(folder / "results").current()
numbers = results.runs.groupby("solver")[["final_loss", "evaluations"]].median()
print(numbers.sort_values("final_loss"))

# %%
# Curves of the true training loss, which is measured off the training clock.

points = results.points.merge(results.runs[["key", "solver", "seed"]], on="key")
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for solver, runs in points.groupby("solver"):
    median = runs.groupby("epoch")["train_loss"].median()
    axes.semilogy(median.index, median, label=solver)
axes.set(xlabel="epochs", ylabel="training loss, median of the seeds")
axes.legend()
plt.show()

# %%
# How much work it took to come within 1 % of the best
# ----------------------------------------------------
# ``solution_costs`` asks for each run when it had first closed all but τ of the gap to the best
# of all solvers; ``inf`` means never.

print(bench.solution_costs(results, tau=1e-2, measure="epochs"))

# %%
# Two seeds of one problem are an anecdote. ``cmalight bench report results`` makes a page with
# performance profiles, their intervals and all tables: :doc:`/guides/report`.
