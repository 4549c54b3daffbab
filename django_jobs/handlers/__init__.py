"""The handlers, which are the code that runs jobs, and their registry."""
