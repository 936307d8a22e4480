"""Measuring: strategies over streams."""
