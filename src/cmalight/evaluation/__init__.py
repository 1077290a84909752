"""The loss at the current weights, evaluated without a trace; the state of a run, saved and restored."""
