"""What the store keeps beside chunks and runs: accounts, alerts, schedules, sources, streams, workers."""
