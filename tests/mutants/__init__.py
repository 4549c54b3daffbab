"""Mutation testing: each small change of what keeps attackers and double runs out fails a test."""
