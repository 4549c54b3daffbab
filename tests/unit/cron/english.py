"""The words for an expression read back: what somebody who has only them takes them to mean.

Shares no code with what writes them. Reads whole sentences only and raises ValueError for one that
it does not understand.
"""

import re
from datetime import timedelta

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CLOCK = r"\d\d:\d\d(?::\d\d)?"
CLOCKS = rf"{CLOCK}(?:, {CLOCK})*(?: and {CLOCK})?"
NUMBERS = r"\d+(?:, \d+)*(?: and \d+)?"
SECONDS = r"every (?:\d+ )?seconds?(?: of each minute)?"
MINUTES = r"every (?:\d+ )?minutes?(?: of each hour)?"
HOURS = r"every (?:\d+ )?hours?(?: of each day)?"
WHILE = (
    r"in every (?P<nth>\d+)(?:st|nd|rd|th) hour from 00:00 on"
    r"|from (?P<first>\d\d):00 to (?P<last>\d\d):59"
    rf"|in the hours? from (?P<hours>{CLOCKS})"
)


class Sentence:
    """``on`` says whether a day fits, ``at`` whether a time of the day does."""

    def __init__(self, words):
        times, days = parts(words)
        self.at = times_of(times)
        self.days = days_of(days) if days else [lambda _day: True]

    def on(self, day):
        return any(fits(day) for fits in self.days)


def parts(words):
    """The times, and the days or nothing."""
    days = rf"(?:on .+|in (?:{'|'.join(MONTHS)})\b.*)"
    if found := re.fullmatch(rf"(at {CLOCKS}) (every day|{days})", words):
        return found[1], "" if found[2] == "every day" else found[2]
    found = understood(rf"(?P<times>.+?)(?:, (?P<days>{days}))?", words)
    return found["times"], found["days"] or ""


def understood(pattern, words):
    if (found := re.fullmatch(pattern, words)) is None:
        raise ValueError(words)
    return found


def listed(words):
    return re.split(r", | and ", words)


# Times.


def times_of(words):
    """A function that takes hour, minute and second."""
    if found := re.fullmatch(rf"at ({CLOCKS})", words):
        clocks = {clock if clock.count(":") > 1 else f"{clock}:00" for clock in listed(found[1])}
        return lambda hour, minute, second: f"{hour:02}:{minute:02}:{second:02}" in clocks
    if found := re.fullmatch(rf"(.+) at seconds? ({NUMBERS})", words):
        within, some = times_of(found[1]), {int(one) for one in listed(found[2])}
        return lambda hour, minute, second: second in some and within(hour, minute, 0)
    if found := re.fullmatch(rf"({SECONDS})(?:| of a minute: (.+))", words):
        within = times_of(found[2]) if found[2] else lambda *_: True
        seconds = every(found[1], "second", "minute", 60)
        return lambda hour, minute, second: second in seconds and within(hour, minute, 0)
    if found := re.fullmatch(rf"({SECONDS}) (?:{WHILE})", words):
        seconds, hours = every(found[1], "second", "minute", 60), hours_of(found)
        return lambda hour, _minute, second: second in seconds and hour in hours
    minutes, hours = minutes_and_hours(words)
    return lambda hour, minute, second: hour in hours and minute in minutes and second == 0


def minutes_and_hours(words):
    if found := re.fullmatch(rf"({MINUTES})(?: (?:{WHILE}))?", words):
        return every(found[1], "minute", "hour", 60), hours_of(found)
    if found := re.fullmatch(rf"at minutes? (?P<minutes>{NUMBERS}) (?:{WHILE})", words):
        return {int(one) for one in listed(found["minutes"])}, hours_of(found)
    if found := re.fullmatch(rf"every hour (?:{WHILE})", words):
        return {0}, hours_of(found)
    found = understood(rf"({HOURS})(?: at minutes? (?P<minutes>{NUMBERS}))?", words)
    minutes = {int(one) for one in listed(found["minutes"])} if found["minutes"] else {0}
    return minutes, every(found[1], "hour", "day", 24)


def every(words, unit, whole, size):
    found = understood(rf"every (?:(\d+) )?{unit}s?( of each {whole})?", words)
    step = int(found[1] or 1)
    # Without "of each" it goes on evenly, which it can only do where it divides the whole.
    if size % step and not found[2]:
        raise ValueError(words)
    return set(range(0, size, step))


def hours_of(found):
    if found["nth"]:
        return set(range(0, 24, int(found["nth"])))
    if found["first"]:
        return set(range(int(found["first"]), int(found["last"]) + 1))
    if found["hours"]:
        return {int(clock[:2]) for clock in listed(found["hours"])}
    return set(range(24))


# Days.


def days_of(words):
    """Functions that take a day; that one of them fits is enough."""
    if words.startswith("in "):
        months = named(words.removeprefix("in "), MONTHS)
        return [lambda day: MONTHS[day.month - 1] in months]
    month = rf"(?:{'|'.join(MONTHS)})"
    months = rf"every month|{month}(?: to {month}|(?:, {month})*(?: and {month})?)"
    found = understood(
        rf"(?:on (?P<dates>(?:day|the last day|the weekday nearest).*?) of (?P<of>{months}))?"
        rf"(?: and )?(?:on (?P<weekdays>.*?)(?: in (?P<in>{months}))?)?",
        words,
    )
    fits = []
    if found["dates"]:
        fits.append(lambda day: in_months(day, found["of"]) and fits_date(found["dates"], day))
    if found["weekdays"]:
        fits.append(
            lambda day: in_months(day, found["in"]) and fits_weekday(found["weekdays"], day)
        )
    return fits


def in_months(day, words):
    if words in {None, "every month"}:
        return True
    return MONTHS[day.month - 1] in named(words, MONTHS)


def named(words, names):
    """Names in a list, or from one to another, round the end of the week where need be."""
    if found := re.fullmatch(r"(\w+) to (\w+)", words):
        first = names.index(found[1])
        around = [*names[first:], *names[:first]]
        return set(around[: around.index(found[2]) + 1])
    if not set(listed(words)) <= set(names):
        raise ValueError(words)
    return set(listed(words))


def month_of(day):
    first = day - timedelta(days=day.day - 1)
    days = [first + timedelta(days=number) for number in range(31)]
    return [one for one in days if one.month == day.month]


def fits_date(words, day):
    if found := re.fullmatch(r"the weekday nearest to day (\d+)( \(where there is one\))?", words):
        wanted, month = int(found[1]), month_of(day)
        if not found[2] and wanted > 28:
            raise ValueError(words)  # what of months without such a day?
        working = [one for one in month if one.weekday() < 5]
        nearest = min(working, key=lambda one: abs(one.day - wanted))
        return wanted <= len(month) and day == nearest
    numbers, _, last = words.partition("the last day")
    if last:
        raise ValueError(words)
    on_last = numbers != words
    days = set()
    if numbers := numbers.removesuffix(" and "):
        for span in listed(understood(r"days? (.+)", numbers)[1]):
            first, _, end = span.partition(" to ")
            days.update(range(int(first), int(end or first) + 1))
    return day.day in days or (on_last and day == month_of(day)[-1])


def fits_weekday(words, day):
    if not words.endswith(" of the month"):
        return WEEKDAYS[day.weekday()] in named(words, WEEKDAYS)
    alike = [one for one in month_of(day) if one.weekday() == day.weekday()]
    for one in listed(words.removesuffix(" of the month")):
        found = understood(r"the (last|\d)(?:st|nd|rd|th)? (\w+)", one)
        place = len(alike) if found[1] == "last" else int(found[1])
        if found[2] == WEEKDAYS[day.weekday()] and alike.index(day) + 1 == place:
            return True
    return False
