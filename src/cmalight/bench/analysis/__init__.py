"""What results say: costs, profiles, curves, tables. Pure functions on frames."""
