"""In which order a worker looks at its queues."""

import time
from collections import Counter
from types import SimpleNamespace

import pytest

from django_jobs.backends.base import LooksAhead
from django_jobs.backends.memory import MemoryBackend
from django_jobs.conf import JobsSettings, QueueConfig
from django_jobs.exceptions import InvalidOption
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import queues
from django_jobs.worker.queues import InTurn, Strict, Weighted, parse


class Known(MemoryBackend):
    """Tells its queues, and counts how often it is asked."""

    asked = 0

    def queues(self):
        self.asked += 1
        return list(dict.fromkeys(job.queue for job in self.jobs.values()))


@pytest.fixture
def backend():
    return Known("database", {})


def settings(*names, strict=True, **queues):
    configs = {name: QueueConfig(name) for name in names}
    configs |= {name: QueueConfig(name, backend=backend) for name, backend in queues.items()}
    return JobsSettings(queues=configs, strict_queues=strict)


def firsts(order, rounds):
    return [order.next()[0] for _ in range(rounds)]


def test_names_are_served_strictly_in_order(backend):
    order = parse("a, b,c", backend, settings())
    assert isinstance(order, Strict)
    assert [list(order.next()) for _ in range(3)] == [["a", "b", "c"]] * 3
    assert str(order) == "a,b,c"


def test_a_name_given_twice_is_looked_at_once(backend):
    assert list(parse("a,b,a", backend, settings()).next()) == ["a", "b"]


@pytest.mark.parametrize("weights", [{"a": 3, "b": 1}, {"a": 1, "b": 1}, {"a": 5, "b": 2, "c": 1}])
def test_each_queue_comes_first_as_often_as_its_weight_says(backend, weights):
    text = ",".join(f"{name}:{weight}" for name, weight in weights.items())
    order = parse(text, backend, settings())
    assert isinstance(order, Weighted)
    total = sum(weights.values())
    assert Counter(firsts(order, total * 10)) == {n: w * 10 for n, w in weights.items()}
    assert str(order) == text


def test_weights_are_spread_and_every_queue_is_looked_at_in_every_round(backend):
    order = parse("a:3,b", backend, settings())
    assert "aaaa" not in "".join(firsts(order, 40))
    assert all(sorted(order.next()) == ["a", "b"] for _ in range(10))


def test_without_names_every_queue_comes_first_in_its_turn(backend):
    backend.enqueue([make_outgoing(queue) for queue in ("x", "y", "z", "x")])
    order = parse(None, backend, settings())
    assert isinstance(order, InTurn)
    assert Counter(firsts(order, 30)) == {"x": 10, "y": 10, "z": 10}
    assert sorted(order.next()) == ["x", "y", "z"]
    assert backend.asked == 1
    assert str(order) == "every queue"


def test_without_any_queue_there_is_the_default_one(backend):
    assert list(parse(None, backend, settings()).next()) == ["default"]


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_a_text_that_names_no_queue_is_refused(backend, text):
    with pytest.raises(InvalidOption, match="leave --queue out to serve every queue"):
        parse(text, backend, settings())


def test_configured_queues_of_this_backend_are_served_though_they_are_empty(backend):
    order = parse(None, backend, settings("mail", "default", logs="elsewhere"))
    assert sorted(order.next()) == ["default", "mail"]


def test_new_queues_are_found_when_it_looks_again(backend):
    order = parse(None, backend, settings())
    assert list(order.next()) == ["default"]
    backend.enqueue([make_outgoing("late")])
    assert list(order.next()) == ["default"]
    order.poll_again()
    assert list(order.next()) == ["late"]


class Telling(Known, LooksAhead):
    """Tells where something is due, too."""

    def __init__(self, *args):
        super().__init__(*args)
        self.due, self.since = [], []

    def queues_due(self, since):
        self.since.append(since)
        return self.due


@pytest.fixture
def telling():
    return Telling("database", {})


def test_where_it_can_be_told_only_queues_are_tried_in_which_something_is_due(telling):
    telling.due = [f"tenant-{n:04}" for n in range(20)]
    order = parse(None, telling, settings(*(f"idle-{n}" for n in range(3000))))
    assert Counter(firsts(order, 60)) == dict.fromkeys(telling.due, 3)
    assert sorted(order.next()) == telling.due
    assert (telling.asked, len(telling.since)) == (0, 1)


def test_a_few_that_had_something_lately_are_tried_without_asking(telling):
    telling.due = ["c", "a"]
    order = parse(None, telling, settings())
    assert sorted(order.next()) == ["a", "c", "default"]
    telling.due = ["b"]
    order.poll_again()
    assert sorted(order.next()) == ["a", "b", "c", "default"]
    telling.due = [f"q{n}" for n in range(9)]
    order.poll_again()
    assert sorted(order.next()) == telling.due
    telling.due = []
    order.poll_again()
    assert sorted(order.next()) == ["q0", "q1", "q2", "q3", "q4"]


def test_each_has_its_turn_though_others_come_and_go(telling):
    telling.due = ["a", "b", "c", "d", "e", "f"]
    order = parse(None, telling, settings())
    seen = []
    for gone in ("b", "d", "a", "c"):
        seen += firsts(order, 1)
        telling.due = [name for name in "abcdef" if name != gone]
        order.poll_again()
    assert seen == ["a", "c", "e", "f"]


def test_what_was_seen_before_the_last_try_does_not_count_when_it_looks_again(telling):
    order = parse(None, telling, settings())
    order.next()
    before = time.monotonic()
    order.next()
    order.poll_again()
    order.next()
    assert telling.since[-1] >= before


def test_while_there_is_work_it_looks_now_and_then_and_never_most_of_the_time(telling, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(queues, "time", SimpleNamespace(monotonic=lambda: now))

    def slowly(since):
        nonlocal now
        now += 0.1
        return ["a"]

    order = parse(None, telling, settings())
    order.next()
    for _ in range(3):
        now += 0.2
        order.refresh()
    assert len(telling.since) == 2  # after more than half a second
    telling.queues_due = slowly
    order.next()
    now += 0.6
    order.refresh()
    assert order._poll_after == pytest.approx(2.0)


@pytest.mark.parametrize("text", ["a", "a:2,b:1"])
def test_named_queues_have_nothing_to_look_for(backend, text):
    order = parse(text, backend, settings())
    before = sorted(order.next())
    order.poll_again()
    assert sorted(order.next()) == before


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("A B", "no queue name"),
        ("a,../etc", "no queue name"),
        ("a;b", "no queue name"),
        (":3", "no queue name"),
        (",", "names no queue"),
        (" , ,", "names no queue"),
        ("a:0", "no whole number"),
        ("a:-1", "no whole number"),
        ("a:1.5", "no whole number"),
        ("a:x", "no whole number"),
        ("a:1001", "no whole number"),
        ("a:3:4", "no whole number"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_word_on_it(backend, text, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse(text, backend, settings())


def test_a_queue_that_is_not_configured_is_refused_naming_the_nearest(backend):
    with pytest.raises(InvalidOption, match="did you mean 'mail'"):
        parse("mial", backend, settings("mail"))
    assert list(parse("mial", backend, settings("mail", strict=False)).next()) == ["mial"]
