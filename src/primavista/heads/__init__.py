"""Heads turn features into class scores."""
