"""Epochs and evaluations in native code: what is compiled, when it holds, and the loops over its blocks."""
