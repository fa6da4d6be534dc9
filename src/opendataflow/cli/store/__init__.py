"""The store itself."""
