"""Streams: tokens, state, sending items."""
