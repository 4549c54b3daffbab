"""What ALLOWED_EVENTS of the tests points to."""

from __future__ import annotations

from django.dispatch import Signal

paid = Signal()
not_a_signal = object()
