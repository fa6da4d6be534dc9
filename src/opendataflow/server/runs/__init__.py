"""Runs, their logs and what they made."""
