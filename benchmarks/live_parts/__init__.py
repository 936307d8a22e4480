"""The parts of benchmarks/live.py; the tests run each in a short form."""
