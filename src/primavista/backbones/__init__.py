"""Backbones: networks, their weights, and what is read of their maps."""
