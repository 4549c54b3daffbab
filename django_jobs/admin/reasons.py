"""The one question that every page with verbs asks."""

from __future__ import annotations

from django import forms

LONGEST_REASON = 1000


def reason_field(kept: str) -> forms.CharField:
    """Why somebody does it. ``kept``: where that can be read later."""
    return forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        strip=True,
        help_text=kept,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "vLargeTextField"}),
    )
