"""What the registry knows of each data set."""
