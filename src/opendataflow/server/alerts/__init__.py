"""Alerts and the messages that were sent."""
