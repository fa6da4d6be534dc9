"""Accounts: who may sign in, tokens, and what was done by whom."""
