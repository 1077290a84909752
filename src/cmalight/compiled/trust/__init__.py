"""Whether what was compiled is what the model and its loss compute."""
