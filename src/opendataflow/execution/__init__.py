"""One run from claim to publish."""
