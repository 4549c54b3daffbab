"""Tools for tests: the conformance suite for backends, and factories of messages.

django_jobs.testing.conformance   BackendConformance, for anyone who writes a backend
django_jobs.testing.model         the same contract as a state machine (needs hypothesis)
django_jobs.testing.factories     signed messages without settings or a registry
"""
