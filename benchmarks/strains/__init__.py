"""The long stress tests of benchmarks/strain.py, one per module, and their shared parts."""
