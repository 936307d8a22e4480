"""Data sets, and the protocols that order their sessions into batches."""
