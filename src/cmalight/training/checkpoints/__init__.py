"""What a run leaves in a file, and whether what is found there can be trusted."""
