"""What handlers raise to steer their own jobs."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from django_jobs.handlers.base import Retry, Snooze


class Seconds(float):
    """As numpy's: marshal and drivers of databases look closer than arithmetic does."""


@pytest.mark.parametrize(
    "asked", [Decimal("0.2"), Fraction(1, 5), Seconds(0.2), timedelta(milliseconds=200)]
)
def test_a_delay_of_any_kind_is_a_plain_float_from_there_on(asked):
    found = [signal(asked).delay for signal in (Retry, Snooze)]
    assert found == [0.2] * 2
    assert {type(delay) for delay in found} == {float}
