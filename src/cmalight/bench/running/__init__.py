"""Runs on this machine or a cluster: the driver, its processes, and what a run does."""
