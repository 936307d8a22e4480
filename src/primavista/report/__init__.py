"""Figures, tables and one HTML page from a folder of results."""
