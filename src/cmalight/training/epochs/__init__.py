"""One epoch of a run, and the engine, threads and random numbers that it has."""
