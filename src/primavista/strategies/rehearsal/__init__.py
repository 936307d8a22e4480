"""Strategies that keep frames or activations of earlier batches, for comparison."""
