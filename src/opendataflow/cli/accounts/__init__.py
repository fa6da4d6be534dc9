"""Accounts of the server."""
