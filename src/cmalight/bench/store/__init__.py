"""A results folder: its files, its lock, its frames."""
