"""What operators say of the limits of one queue, and of several."""

from __future__ import annotations

from typing import Any

from django import forms

from django_jobs.admin.acting import WhyForm
from django_jobs.backends.database.limits import UNLIMITED
from django_jobs.backends.rates import Rate
from django_jobs.operations.queues import MOST_PLACES

SETTINGS = "settings"
LIMITS = ("rate_limit", "concurrency")


class RateForm(WhyForm):
    """A rate that is one."""

    field_order = (*LIMITS, "reason")
    rate_limit = forms.CharField(
        required=False,
        max_length=32,
        label="Rate limit",
        help_text="Such as 60/m or 5/s (s, m, h, d). “none”: no limit. "
        "Empty: that of the settings.",
    )

    def clean_rate_limit(self) -> str:
        text = str(self.cleaned_data["rate_limit"]).strip()
        if text not in {"", UNLIMITED}:
            try:
                Rate.parse(text)
            except ValueError as error:
                raise forms.ValidationError(str(error)) from None
        return text


class LimitForm(RateForm):
    """The two limits that operators set of one queue."""

    concurrency = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_PLACES,
        label="At a time",
        help_text="How many jobs of this queue may run at once, in all workers together. "
        "Empty: no limit.",
    )


class LimitsForm(RateForm):
    """The same for several queues, which may differ: what is left empty stays as it is."""

    concurrency = forms.CharField(
        required=False,
        max_length=16,
        label="At a time",
        help_text="How many jobs of each queue may run at once. “none”: no limit. "
        "Empty: as it is in each.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["rate_limit"].help_text = (
            "Such as 60/m or 5/s (s, m, h, d). “none”: no limit. “settings”: that of the "
            "settings. Empty: as it is in each."
        )

    def clean_rate_limit(self) -> str:
        if str(self.cleaned_data["rate_limit"]).strip() == SETTINGS:
            return SETTINGS
        return super().clean_rate_limit()

    def clean_concurrency(self) -> int | str | None:
        text = str(self.cleaned_data["concurrency"]).strip()
        if text in {"", UNLIMITED}:
            return text
        places = forms.IntegerField(min_value=0, max_value=MOST_PLACES).clean(text)
        return places if places is None else int(places)

    def clean(self) -> dict[str, Any]:
        """Only what was said, in the words of the operation."""
        said = {name: value for name, value in self.cleaned_data.items() if value != ""}
        if not self.errors and not said.keys() & set(LIMITS):
            raise forms.ValidationError("Say at least one limit.")
        meant: dict[tuple[str, Any], Any] = {
            ("rate_limit", SETTINGS): "",
            ("concurrency", UNLIMITED): None,
        }
        told = {name: meant.get((name, value), value) for name, value in said.items()}
        return {"reason": "", **told}
