"""The loss at the current weights, evaluated without a trace, and the state of a run, to be saved and put back."""
