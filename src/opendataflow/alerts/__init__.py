"""Alerts: what somebody must hear of, and sending it."""
