"""A shop with one table: enough to have something to do in the background."""
