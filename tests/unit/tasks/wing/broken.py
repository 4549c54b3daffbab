"""A module that cannot be imported."""

raise RuntimeError("broken for good")
