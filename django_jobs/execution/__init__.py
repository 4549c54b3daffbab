"""Running one attempt."""
