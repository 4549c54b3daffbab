from datetime import date, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import settings as effort

from django_jobs.cron.describe import in_words
from django_jobs.exceptions import InvalidSchedule
from tests.unit.cron import english, expressions_at_random, oracle


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0,15,30,45 * * * *", "every 15 minutes"),
        ("*/7 * * * *", "every 7 minutes of each hour"),
        ("0 * * * *", "every hour"),
        ("15 * * * *", "every hour at minute 15"),
        ("0,20 * * * *", "every hour at minutes 0 and 20"),
        ("3/17 * * * *", "every hour at minutes 3, 20, 37 and 54"),
        ("0 */2 * * *", "every 2 hours"),
        ("15 */2 * * *", "every 2 hours at minute 15"),
        ("0 */5 * * *", "at 00:00, 05:00, 10:00, 15:00 and 20:00 every day"),
        ("*/10 */2 * * *", "every 10 minutes in every 2nd hour from 00:00 on"),
        ("0 2 * * *", "at 02:00 every day"),
        ("@daily", "at 00:00 every day"),
        ("@hourly", "every hour"),
        ("0 2,14 * * *", "at 02:00 and 14:00 every day"),
        ("*/30 2,4 * * *", "at 02:00, 02:30, 04:00 and 04:30 every day"),
        ("0 1,2,3,5,7,11,13 * * *", "at 01:00, 02:00, 03:00, 05:00, 07:00, 11:00 and 13:00"),
        (
            "10 1,3,5,7,9,11,13 * * 1",
            (
                "at minute 10 in the hours from 01:00, 03:00, 05:00, 07:00, "
                "09:00, 11:00 and 13:00, on Monday"
            ),
        ),
        ("* 2 * * *", "every minute in the hour from 02:00"),
        ("* 9-17 * * *", "every minute from 09:00 to 17:59"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:59"),
        ("5,10,15 9-17 * * *", "at minutes 5, 10 and 15 from 09:00 to 17:59"),
        ("*/10 9-17 * * 1-5", "every 10 minutes from 09:00 to 17:59, on Monday to Friday"),
        ("30 8 * * mon-fri", "at 08:30 on Monday to Friday"),
        ("0 0 * * 0", "at 00:00 on Sunday"),
        ("0 0 * * 7", "at 00:00 on Sunday"),
        ("0 0 * * 6,0", "at 00:00 on Saturday and Sunday"),
        ("0 0 * * 5,6,0", "at 00:00 on Friday to Sunday"),
        ("0 2 * * mon,wed,fri", "at 02:00 on Monday, Wednesday and Friday"),
        ("0 0 * * 5#2", "at 00:00 on the 2nd Friday of the month"),
        ("0 0 * * l5", "at 00:00 on the last Friday of the month"),
        ("0 0 1 * *", "at 00:00 on day 1 of every month"),
        ("0 0 1-7,15 * *", "at 00:00 on days 1 to 7 and 15 of every month"),
        ("0 0 1-31/10 * *", "at 00:00 on days 1, 11, 21 and 31 of every month"),
        ("0 0 l * *", "at 00:00 on the last day of every month"),
        ("0 0 15w * *", "at 00:00 on the weekday nearest to day 15 of every month"),
        ("0 0 1 1,4,7,10 *", "at 00:00 on day 1 of January, April, July and October"),
        ("0 0 1 6-8 *", "at 00:00 on day 1 of June to August"),
        ("0 0 29 2 *", "at 00:00 on day 29 of February"),
        ("0 0 13 * 5", "at 00:00 on day 13 of every month and on Friday"),
        ("0 0 13 * fri#2", "at 00:00 on day 13 of every month and on the 2nd Friday of the month"),
        ("0 0 L * mon", "at 00:00 on the last day of every month and on Monday"),
        ("0 0 1 1 mon", "at 00:00 on day 1 of January and on Monday in January"),
        ("0 0 1,L 6-8 *", "at 00:00 on day 1 and the last day of June to August"),
        (
            "0 0 31W * *",
            "at 00:00 on the weekday nearest to day 31 (where there is one) of every month",
        ),
        ("0 0 1-31 * mon", "at 00:00 every day"),
        ("0 0 1 3 0-6", "at 00:00 in March"),
        ("*,5 * * * *", "every minute"),
        ("0 0 * * 7/2", "at 00:00 on Sunday"),
        ("0 0 * * SUN/2", "at 00:00 on Tuesday, Thursday, Saturday and Sunday"),
        ("0 12 * 3 *", "at 12:00 in March"),
        ("* * * 3 *", "every minute, in March"),
        ("0 12 * 3 1", "at 12:00 on Monday in March"),
        ("* * * * * *", "every second"),
        ("* * * * * */10", "every 10 seconds"),
        ("* * * * * 30", "every minute at second 30"),
        ("*/5 * * * * 30", "every 5 minutes at second 30"),
        ("0 2 * * * 30", "at 02:00:30 every day"),
        ("* 2 * * * 5,10", "every minute in the hour from 02:00 at seconds 5 and 10"),
        ("0 * * * * */20", "every 20 seconds of a minute: every hour"),
    ],
)
def test_an_expression_in_words(expression, words):
    assert in_words(expression) == words


def test_a_hashed_expression_tells_what_became_of_it():
    assert in_words("H H * * *", "one") == in_words("H H * * *", "one")
    assert in_words("H H * * *", "one") != in_words("H H * * *", "another")


def test_what_is_no_expression_has_no_words():
    with pytest.raises(InvalidSchedule, match="61"):
        in_words("61 * * * *")


# What the words say, read back, beside what an oracle makes of the expression.

DAYS = [date(2027, 1, 1) + timedelta(days=number) for number in range(366 + 365)]
TIMES = list(product(range(24), range(60), (0, 1, 7, 15, 30, 40, 59)))


def disagreement(expression):
    """The first day or time of which the words say something else than the expression."""
    try:
        sentence = english.Sentence(words := in_words(expression))
    except InvalidSchedule as refused:
        return None if "never comes" in str(refused) else refused
    fields = oracle.Fields(expression)
    for day in DAYS:
        if sentence.on(day) != fields.on(day):
            return f"{words}: {day}"
    for hour, minute, second in TIMES:
        due = hour in fields.hours and minute in fields.minutes and second in fields.seconds
        if sentence.at(hour, minute, second) != due:
            return f"{words}: {hour}:{minute}:{second}"
    return None


@effort(deadline=None, max_examples=100)
@given(expressions_at_random.ANY)
def test_the_words_say_nothing_else_than_what_runs(expression):
    assert disagreement(expression) is None


@effort(deadline=None, max_examples=200)
@given(expressions_at_random.OF_DAYS)
def test_the_words_for_days_say_nothing_else_than_what_runs(expression):
    assert disagreement(expression) is None


STEPS = ("*", "*/5", "*/7", "0", "0,30", "5-9", "45", "*/40", "3/17", "0-58/2", "59/15")
HOURS = ("*", "*/2", "*/5", "9-17", "0", "22-3/2", "1-23/2", "0,12", "9,17", "0-23")


@pytest.mark.parametrize("hours", HOURS)
def test_the_words_for_times_say_nothing_else_than_what_runs(hours):
    for minutes, seconds in product(STEPS, ("", *STEPS)):
        assert disagreement(f"{minutes} {hours} * * * {seconds}".strip()) is None


@pytest.mark.parametrize(
    "words", ["every 7 minutes", "at 5", "every minute, at dusk", "at 00:00 on Moonday"]
)
def test_who_reads_them_understands_nothing_else(words):
    with pytest.raises(ValueError, match=words.removeprefix("at 00:00 on ")):
        english.Sentence(words).on(DAYS[0])
