"""Streams: batches of items, sealed slots, replay, watched folders."""
