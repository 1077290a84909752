"""What a step of a model does, as a list of operations: what native and traced steps are made from."""
