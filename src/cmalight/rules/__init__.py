"""Every decision on plain floats: the paper's rules and their line searches, the baselines, the watchdog."""
