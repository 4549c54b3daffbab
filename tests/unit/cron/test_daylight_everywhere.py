"""Every change of clocks of every zone from 2024 to 2035, beside the oracle: long.

Zones whose clocks agree through all those years are one another's copies: expressions are
compared in one of them, and a few in each of the others.
"""

import zoneinfo

import pytest

from tests.unit.cron import oracle
from tests.unit.cron.comparing import EXPRESSIONS, compared, shown_around

FIRST, LAST = 2024, 2035
A_FEW = 3
MUST = {
    "Africa/Casablanca",
    "America/Santiago",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
}


def alike():
    """Zones whose clocks are changed at all, those that agree beside each other."""
    groups = {}
    for name in sorted(zoneinfo.available_timezones() - {"localtime"}):
        zone = oracle.zone_named(name)
        found = oracle.changes(zone, FIRST, LAST)
        if found:
            clocks = tuple(
                (change, oracle.ahead(zone, change - 1), oracle.ahead(zone, change))
                for change in found
            )
            groups.setdefault(clocks, []).append(name)
    return [(names, [change for change, *_ in clocks]) for clocks, names in groups.items()]


@pytest.mark.timeout(600)
def test_no_tick_is_missing_and_none_is_double(record_property, capsys):
    groups = alike()
    zones = [name for names, _found in groups for name in names]
    assert set(zones) > MUST
    ticks = changes = 0
    for (first, *others), found in groups:
        changes += len(found)
        for number, change in enumerate(found):
            # One half of them in one year and the other half in the next, where there are more.
            some = EXPRESSIONS if len(found) <= A_FEW else EXPRESSIONS[number // 2 % 2 :: 2]
            shown = shown_around(first, change)
            ticks += sum(compared(expression, first, shown) for expression in some)
        for name in others:
            shown = shown_around(name, found[-1])
            ticks += sum(compared(one, name, shown) for one in EXPRESSIONS[::8])
    told = (
        f"{ticks:,} ticks of {len(EXPRESSIONS)} expressions, {len(zones)} zones, {changes} changes"
    )
    record_property("compared", told)
    with capsys.disabled():
        print(f"\ncompared {told}: none missing, none double")
    assert ticks > 100_000
