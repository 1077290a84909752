"""One torch thread per test process: the test run itself uses every core."""

import torch

torch.set_num_threads(1)
