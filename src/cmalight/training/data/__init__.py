"""What a run trains on: its batches, its losses, its objective."""
