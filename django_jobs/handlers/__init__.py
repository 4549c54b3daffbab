"""The code that runs jobs, and the registry it is found in."""
