"""The modules that keep attackers and double runs out: every branch is run by a test."""
