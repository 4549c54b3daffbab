"""One file for each contestant: what it is, how it is set up, fed and started."""
