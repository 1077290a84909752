"""Files with columns: reading, encoding, scaling."""
