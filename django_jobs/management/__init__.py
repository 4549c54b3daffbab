"""The commands of ``manage.py``, and what they are made of."""
