"""When a cron expression is due, found by looking at every minute. Shares no code with ours.

Slow and simple on purpose: a clock on the wall is watched minute by minute (second by second
for six fields), and what it shows is held against sets of numbers. The rules:

* An interval is due whenever the clock shows a time that fits.
* A fixed time is due when the clock first shows it or, where the clock jumps over it, when it
  jumps; what the clock shows a second time, having been put back, counts no more.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (0, 59))
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMES = {
    2: {"l": 31},
    3: {name: number for number, name in enumerate(MONTHS, 1)},
    4: {name: number for number, name in enumerate(WEEKDAYS)},
}
DAY = timedelta(days=1)


class Fields:
    """What an expression means, read from its text."""

    def __init__(self, expression):
        texts = expression.lower().split()
        self.by_second = len(texts) == 6
        self.minutes, self.hours = numbers(texts[0], 0), numbers(texts[1], 1)
        self.months = numbers(texts[3], 3)
        self.dates, self.weekdays = texts[2], texts[4]
        self.seconds = numbers(texts[5], 5) if self.by_second else {0}
        self.known = {}
        places = (0, 1, 5) if self.by_second else (0, 1)
        values = {0: self.minutes, 1: self.hours, 5: self.seconds}
        self.is_interval = any(
            "*" in texts[place] or "/" in texts[place] or len(values[place]) == (60, 24)[place == 1]
            for place in places
        )

    def on(self, day):
        """Whether the day fits."""
        if day not in self.known:
            self.known[day] = day.month in self.months and self.said(day)
        return self.known[day]

    def said(self, day):
        """Both said: either will do. One left open: it does not matter."""
        if self.dates in "*?":
            return self.weekdays in "*?" or fits_weekday(self.weekdays, day)
        if self.weekdays in "*?":
            return fits_date(self.dates, day)
        return fits_date(self.dates, day) or fits_weekday(self.weekdays, day)

    def at(self, wall):
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self.on(wall.date())
        )


def days_of_the_month(day):
    """All of its month, the first one first."""
    found = [day.replace(day=1)]
    while (found[-1] + DAY).month == day.month:
        found.append(found[-1] + DAY)
    return found


def fits_date(text, day):
    month = days_of_the_month(day)
    for item in text.split(","):
        if item == "l":
            fits = day == month[-1]
        elif "w" in item:
            wanted = int(item.strip("w"))
            working = [one for one in month if one.isoweekday() <= 5]
            nearest = min(working, key=lambda one: abs(one.day - wanted))
            fits = day == nearest and wanted <= len(month)
        else:
            fits = day.day in numbers(item, 2)
        if fits:
            return True
    return False


def fits_weekday(text, day):
    alike = [one for one in days_of_the_month(day) if one.isoweekday() == day.isoweekday()]
    for item in text.split(","):
        if item.startswith("l"):
            fits = day == alike[-1] and int(item[1:]) % 7 == day.isoweekday() % 7
        else:
            weekday, _, which = item.partition("#")
            fits = day.isoweekday() % 7 in {one % 7 for one in numbers(weekday, 4)}
            if which:
                fits = fits and alike.index(day) + 1 == int(which)
        if fits:
            return True
    return False


def numbers(text, place):
    low, high = BOUNDS[place]
    found = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            start, end = low, high
        else:
            start = number(first, place)
            end = number(last, place) if last else max(high, start) if step else start
        line = list(range(start, end + 1))
        if start > end:  # on from the lowest again
            line = [*range(start, high + 1), *range(low, end + 1)]
        found.update(line[:: int(step or 1)])
    return found


def number(text, place):
    names = NAMES.get(place, {})
    return names[text] if text in names else int(text)


def walls(zone, start, end, step):
    """What the clock shows, at each moment."""
    moment = start
    while moment < end:
        yield moment, datetime.fromtimestamp(moment, zone).replace(tzinfo=None)
        moment += step


def due(expression, shown, step, *, interval=None):
    """The moments that are due among ``shown``, a list of what ``walls`` gives."""
    fields = Fields(expression)
    if fields.is_interval if interval is None else interval:
        return [moment for moment, wall in shown if fields.at(wall)]
    found = []
    latest = shown[0][1] - timedelta(seconds=step)
    for moment, wall in shown:
        if wall <= latest:
            continue
        passed = latest + timedelta(seconds=step)
        while passed <= wall:
            if fields.at(passed):
                found.append(moment)
                break
            passed += timedelta(seconds=step)
        latest = wall
    return found


def changes(zone, first_year, last_year):
    """The moments at which a zone's clocks are changed: looks every day, hour, then minute."""
    moment = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    return list(_changes(zone, moment, end, (86_400, 3600, 60)))


def _changes(zone, moment, end, steps):
    step, *finer = steps
    while moment < end:
        if ahead(zone, moment) != ahead(zone, moment + step):
            if finer:
                yield from _changes(zone, moment, moment + step, finer)
            else:
                yield moment + step
        moment += step


def ahead(zone, moment):
    return datetime.fromtimestamp(moment, zone).utcoffset()


def zone_named(name):
    return ZoneInfo(name)
