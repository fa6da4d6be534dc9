"""Streams: the intake over HTTP, and how each stands."""
