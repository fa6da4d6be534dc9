"""What a stream has accepted: a durable log of items on disk, its readers, and what may enter it."""
