"""Between epochs: what is known and remembered, the step size, and what is told of it."""
