"""Workers, ticks and limits."""
