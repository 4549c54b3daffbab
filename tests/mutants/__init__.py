"""Mutation testing: each small change of the modules that keep attackers out must fail a test."""
