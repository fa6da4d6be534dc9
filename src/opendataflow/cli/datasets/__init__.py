"""Chunks: declared, checked, looked at, cleared."""
