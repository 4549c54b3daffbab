"""What travels: the envelope, its strict JSON, its signature, and opening it again.

Nothing in here knows Django.
"""
