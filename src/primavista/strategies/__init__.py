"""Strategies: those of the paper, those that it compares with, and our own."""
