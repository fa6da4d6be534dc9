"""Workers and limits."""
