"""Cron expressions for hypothesis: everything that is documented, and nothing else."""

from hypothesis import strategies as st


def lists(items, most=3):
    return st.lists(items, min_size=1, max_size=most).map(",".join)


def spans(low, high, *, around=True):
    """Values, ranges that may go round the end, and steps."""
    value = st.integers(low, high)
    pair = st.tuples(value, value).filter(
        lambda two: two[0] != two[1] and (around or two[0] < two[1])
    )
    step = st.integers(1, high + 3)
    return st.one_of(
        value.map(str),
        pair.map(lambda two: f"{two[0]}-{two[1]}"),
        st.tuples(pair, step).map(lambda one: f"{one[0][0]}-{one[0][1]}/{one[1]}"),
        st.tuples(value, step).map(lambda one: f"{one[0]}/{one[1]}"),
        step.map(lambda one: f"*/{one}"),
    )  # fmt: skip


def field(low, high):
    return st.one_of(st.just("*"), lists(spans(low, high)))


NAMES = st.sampled_from(["sun", "Mon", "TUE", "wed", "thu", "fri", "sat", "0", "3", "7"])
NUMBERED = st.one_of(
    st.tuples(NAMES, st.integers(1, 5)).map(lambda one: f"{one[0]}#{one[1]}"),
    st.integers(0, 7).map(lambda one: f"L{one}"),
)
WEEKDAY = st.one_of(
    st.sampled_from(["*", "?"]),
    lists(st.one_of(NAMES, spans(0, 6), st.sampled_from(["0-7", "1-7/2", "7/3", "sat-tue/2"]))),
    lists(NUMBERED),
)
DATE = st.one_of(
    st.sampled_from(["*", "?"]),
    st.integers(1, 31).map(lambda day: f"{day}W"),
    lists(st.one_of(spans(1, 31), st.sampled_from(["L", "20-l", "1-L/4"]))),
)
MONTH = st.one_of(st.just("*"), field(1, 12), st.sampled_from(["feb", "jun-AUG", "nov-feb"]))
BY_MINUTE = st.tuples(field(0, 59), field(0, 23), DATE, MONTH, WEEKDAY).map(" ".join)
BY_SECOND = st.tuples(BY_MINUTE, field(0, 59)).map(" ".join)
ANY = st.one_of(BY_MINUTE, BY_SECOND)
OF_DAYS = st.tuples(DATE, MONTH, WEEKDAY).map(lambda days: f"0 0 {' '.join(days)}")
