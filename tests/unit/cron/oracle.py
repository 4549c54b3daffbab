"""When a cron expression is due, found by looking at every minute. Shares no code with ours.

Slow and simple on purpose: a clock on the wall is watched minute by minute (second by second
for six fields), and what it shows is held against sets of numbers. The rules:

* An interval is due whenever the clock shows a time that fits.
* A fixed time is due when the clock first shows it or, where the clock jumps over it, when it
  jumps; what the clock shows a second time, having been put back, counts no more.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7), (0, 59))
NAMES = {
    3: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    4: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}


class Fields:
    """What an expression means, read from its text."""

    def __init__(self, expression):
        texts = expression.split()
        self.by_second = len(texts) == 6
        values = [numbers(text, place) for place, text in enumerate(texts)]
        self.minutes, self.hours, self.days, self.months = values[:4]
        self.weekdays = {number % 7 for number in values[4]}
        self.seconds = values[5] if self.by_second else {0}
        # Both said: either will do. One left open: it does not matter.
        self.either = texts[2] != "*" and texts[4] != "*"
        places = (0, 1, 5) if self.by_second else (0, 1)
        self.is_interval = any(
            "*" in texts[place] or "/" in texts[place] or len(values[place]) == (60, 24)[place == 1]
            for place in places
        )

    def on(self, wall):
        """Whether the day fits."""
        by_date = wall.day in self.days
        by_weekday = wall.isoweekday() % 7 in self.weekdays
        fits = by_date or by_weekday if self.either else by_date and by_weekday
        return fits and wall.month in self.months

    def at(self, wall):
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self.on(wall)
        )


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
            end = number(last, place) if last else high if step else start
        found.update(range(start, end + 1, int(step or 1)))
    return found


def number(text, place):
    names = NAMES.get(place, [])
    return names.index(text) + (place == 3) if text in names else int(text)


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
