"""f(w) without a trace: the objective, its batches, snapshots of a model, random numbers, norms."""
