"""What is measured and noted of each epoch, and what follows from it: the display, the best, the stop."""
