"""One torch thread per test process, since the run uses every core; and examples that are the same on every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
