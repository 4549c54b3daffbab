"""Running one attempt, and its outcome."""
