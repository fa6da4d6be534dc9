"""Datasets, their chunks, and the grid of both."""
