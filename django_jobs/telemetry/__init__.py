"""Events, the log sentences and metrics made of them, and traces."""
