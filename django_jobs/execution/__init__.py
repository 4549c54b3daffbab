"""Running one attempt, and the decision what follows from its outcome."""
