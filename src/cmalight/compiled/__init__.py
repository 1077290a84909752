"""Epochs compiled into native loops, with the numbers of the eager ones."""
