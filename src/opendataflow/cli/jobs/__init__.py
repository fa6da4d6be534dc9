"""What is registered, how it stands, and operating it."""
