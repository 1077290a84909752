"""Optimizers by name, and the schedules and budgets that some of them follow."""
