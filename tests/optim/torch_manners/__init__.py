"""What PyTorch's own test suite asks of its optimizers, asked of CMALight, CMA and IG."""
