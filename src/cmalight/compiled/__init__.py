"""Epochs compiled into native loops, with the numbers of the eager ones; here is what every way to compile shares."""
