"""Events, the log sentences and figures made of them, and traces."""
