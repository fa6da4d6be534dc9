"""Where datasets come from: bind, test, sample, download."""
