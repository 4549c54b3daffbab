"""Backends: the contract, the registry of aliases, and the implementations."""
