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
     "0 0 * * SAT/2", "0 0 1 1,12/2 *", "* * * * * 59/2"],
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
        "* * * * 7/2",
    ],
)
def test_others_mean_what_they_did(text):
    assert changed_meaning(text) is None


def test_what_is_said_of_the_greatest_value_is_true_of_this_croniter():
    assert croniter.expand("59/15 * * * *")[0][0] == [59]
    assert croniter.expand("* * * * 6/1")[0][4] == [6]
    assert croniter.expand("* * * * 7/2")[0][4] == [0, 2, 4, 6]  # as ever
