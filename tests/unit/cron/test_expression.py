import pytest
from croniter import croniter

from django_jobs.cron.expression import changed_meaning, parsed
from django_jobs.exceptions import InvalidSchedule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("61 * * * *", "out of range"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * 2027", "has 7 fields"),
        ("a b c d e", "not acceptable"),
        ("", "give a text such as"),
        (None, "give a text such as"),
        (" " * 300, "give a text such as"),
        ("0 0 30 2 *", "never comes"),
        ("R * * * *", "every scheduler would read differently"),
        ("0 r(1-5) * * *", "every scheduler would read differently"),
        ("5-5 * * * *", "from a value to itself; write '5'"),
        ("0 0 * * mon-mon", "from a value to itself; write 'mon'"),
        ("5-05 * * * *", "from a value to itself; write '5'"),
        ("0 0 * * 5-fri", "from a value to itself; write '5'"),
        ("0 0 * * 7-sun", "from a value to itself; write '7'"),
        ("0 0 31-L * *", "from a value to itself; write '31'"),
        ("0 0 * * mon-mon#2", "from a value to itself; write 'mon'"),
        ("0 0 L-3 * *", "has 'l-3', which is not supported; write 'L'"),
        ("0 0 LW * *", "has 'lw', which is not supported; write 'L'"),
        ("0 0 15W,20 * *", "has '15w' in a list.*a schedule for each"),
        ("0 0 1,20W * *", "has '20w' in a list.*a schedule for each"),
        ("0 0 0W * *", "out of range"),
        ("H,30 * * * *", "has 'h' in a list.*a schedule for each"),
        ("0 0 * * L", "has 'l', which is not supported; write 'L5'"),
        ("0 0 * * 5L", "has '5l', which is not supported; write 'L5'"),
        ("0 0 * * Lfri", "has 'lfri', which is not supported; write 'L5'"),
        ("0 0 * * fri#L", "has 'fri#l', which is not supported; write 'L5'"),
        ("0 0 * * fri#6", "no cron expression"),
        ("0 0 * * mon,fri#2", "mixes days of every week.*a schedule for each"),
        ("0 0 * * fri,fri#2", "mixes days of every week.*a schedule for each"),
        ("0 0 * * 0-6,L5", "mixes days of every week.*a schedule for each"),
        ("? * * * *", "which is not supported; write '\\*'"),
        ("0 0 * * 7/0", "no cron expression"),
        ("0 0 H(28-31) * *", "a day that every month has, 1 to 28; write 'H'"),
        ("0 0 H(1-32) * *", "out of range"),
        ("0 0 30 H *", "never comes under some names.*'H' may stand for a month"),
        ("0 0 31W H(9-11)/2 *", "never comes under some names.*'H' may stand for a month"),
        ("@reboot", "no cron expression"),
        ("0 0 0 * * *", "no cron expression"),
        ("*/0 * * * *", "no cron expression"),
        ("9" * 30 + " * * * *", "no cron expression"),
        ("0\u00a02 * * *", "no cron expression"),
        ("\uff10 2 * * *", "no cron expression"),
    ],
)
def test_a_wrong_expression_is_quoted_with_the_reason(text, why):
    with pytest.raises(InvalidSchedule, match=why) as caught:
        parsed(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["* * * * *", "0 2 * * * 30", "@daily", "H H * * *", "0 0 l * *", "0 0 * * 5#2", "0 0 15W * *"],
)
def test_a_right_expression_is_read(text):
    assert parsed(text, "a name").next_wall(0) > 0


def test_six_fields_have_the_seconds_last():
    assert parsed("0 2 * * * 30").next_wall(0) == 2 * 3600 + 30


def test_h_depends_on_the_name_and_on_nothing_else():
    spread = {parsed("H * * * *", f"schedule {n}").next_wall(0) for n in range(50)}
    assert len(spread) > 20
    assert parsed("H * * * *", "x").next_wall(0) == parsed("H * * * *", "x").next_wall(0)


NAMES = [f"schedule {number}" for number in range(300)]


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("H", set(range(1, 29))),
        ("H(1-31)", set(range(1, 29))),
        ("h(20-30)", set(range(20, 29))),
        ("H(5-7)", {5, 6, 7}),
    ],
)
def test_h_as_a_day_of_the_month_is_one_that_every_month_has_whatever_the_name(field, days):
    found = [parsed(f"0 0 {field} 2 *", name).expanded[2] for name in NAMES]
    assert {day for (day,) in found} == days


@pytest.mark.parametrize(("field", "step", "last"), [("H/10", 10, 28), ("H(3-30)/9", 9, 28)])
def test_h_with_a_step_stays_among_the_days_that_every_month_has(field, step, last):
    for name in NAMES:
        days = parsed(f"0 0 {field} * *", name).expanded[2]
        assert days == list(range(days[0], last + 1, step))
        assert days[0] < last


@pytest.mark.parametrize(
    "text",
    ["H H H H H", "0 0 H 2 *", "H H H(1-31) H *", "0 0 29 H *", "0 0 31 H mon", "0 0 30 H(4-6) *",
     "0 0 H/30 2 *", "0 0 L H *", "0 0 * H H", "0 0 31W H(5-8)/2 *"],
)  # fmt: skip
def test_an_expression_that_is_right_under_one_name_is_right_under_every_other(text):
    assert all(parsed(text, name).next_wall(0) for name in NAMES)


@pytest.mark.parametrize("text", ["0 0 30 H *", "0 0 31 H *", "0 0 31 H(4-11) *"])
def test_one_that_never_comes_under_some_names_is_refused_under_every_name(text):
    for name in NAMES:
        with pytest.raises(InvalidSchedule, match="never comes under some names"):
            parsed(text, name)


def test_capital_letters_and_small_ones_mean_the_same():
    for text in ("0 0 l * *", "0 0 15w * mon#1", "0 0 * jan-mar fri-mon", "h h h * l5"):
        lower, upper = parsed(text, "x"), parsed(text.upper(), "x")
        assert (lower.times, lower.days) == (upper.times, upper.days)


def test_a_nickname_is_not_hashed():
    assert parsed("@daily", "a name").next_wall(0) == 86_400


def test_one_that_is_shared_does_not_remember_where_it_stood():
    expression = parsed("*/5 * * * *")
    assert [expression.next_wall(wall) for wall in (0, 600, 0)] == [300, 900, 300]


@pytest.mark.parametrize(
    ("text", "is_interval"),
    [
        ("0 2 * * *", False),
        ("0,30 1-4 * * *", False),
        ("0 * * * *", True),
        ("*/5 2 * * *", True),
        ("0 1-23/2 * * *", True),
        ("0 0-23 * * *", True),
        ("H H * * *", False),
        ("0 2 */2 * *", False),
        ("0 2 * * * *", True),
        ("0 2 * * * 5", False),
    ],
)
def test_what_counts_as_an_interval(text, is_interval):
    assert parsed(text, "a name").paced is is_interval


@pytest.mark.parametrize(
    "text",
    ["59/15 * * * *", "0 23/6 * * *", "0 0 31/5 * *", "0 0 1 DEC/3 *", "* * * * 6/1",
     "0 0 * * SAT/2", "0 0 * * 7/2", "0 0 1 1,12/2 *", "* * * * * 59/2"],
)  # fmt: skip
def test_a_step_from_the_greatest_value_changed_its_meaning(text):
    assert changed_meaning(text)


@pytest.mark.parametrize(
    "text",
    [
        "58/15 * * * *",
        "*/15 * * * *",
        "0-59/15 * * * *",
        "59 * * * *",
        "0 0 1 11/3 *",
        "* * * * SUN/2",
        "* * * * 0/2",
    ],
)
def test_others_mean_what_they_did(text):
    assert changed_meaning(text) is None


def test_what_is_said_of_the_greatest_value_is_true_of_this_croniter():
    assert croniter.expand("59/15 * * * *")[0][0] == [59]
    assert croniter.expand("* * * * 6/1")[0][4] == [6]
    assert parsed("* * * * 7/2").expanded[4] == [0]
    assert parsed("* * * * SUN/2").expanded[4] == parsed("* * * * 0/2").expanded[4] == [0, 2, 4, 6]
