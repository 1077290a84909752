"""Data in memory: batches, tables, encodings, data sets."""
