"""The bracket around an epoch: its windows, and what judges them."""
