"""A small real site: what the tests, the type checker and a curious reader run against."""
