"""The no-op of each contestant, in the form in which its library wants it."""
