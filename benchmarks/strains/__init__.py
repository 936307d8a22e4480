"""The long strains of benchmarks/strain.py, one per module, and what they share."""
