"""What a chunk is made of, and what is made of it."""
