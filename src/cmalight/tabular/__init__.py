"""From a table to a trained network and its predictions: what `cmalight train` and `predict` do."""
