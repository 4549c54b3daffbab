"""The wire format: the envelope, its strict JSON, its signature, and opening it again.

Nothing here depends on Django.
"""
