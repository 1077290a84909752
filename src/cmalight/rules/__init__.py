"""Every decision on plain floats: outcomes, the paper's rules, line searches, the tolerant rule, the baselines."""
