"""What is to be compared: specs, solvers, networks, and the plan of the runs."""
