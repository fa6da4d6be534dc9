"""Checks of a chunk's files without Spark and without Java."""
