"""Checks of data: what they are, and the patterns that they compare texts with."""
