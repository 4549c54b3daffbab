"""Events: signals that the site has named, and receivers that fail by name."""

import pytest

from django_jobs import Snooze
from django_jobs.exceptions import HandlerRefused, InvalidPayload
from django_jobs.handlers.event import EventHandler, find_signal
from django_jobs.outcome import Failed, Snoozed, Succeeded
from tests.unit.handlers.attempts import attempt
from tests.unit.handlers.signals_of_tests import paid

PASSWORD = "hunter" + "2"
HERE = "tests.unit.handlers.signals_of_tests"


@pytest.fixture
def handler(settings):
    settings.DJANGO_JOBS = {"ALLOWED_EVENTS": {"order.paid": f"{HERE}.paid"}}
    return EventHandler()


@pytest.fixture
def connect():
    connected = []

    def connect(receiver, **options):
        paid.connect(receiver, weak=False, **options)
        connected.append((receiver, options.get("sender")))

    yield connect
    for receiver, sender in connected:
        assert paid.disconnect(receiver, sender=sender)


def send(handler, data=None):
    return attempt(handler, {"name": "order.paid", "data": data})


def test_receivers_get_the_event_its_data_and_the_job(handler, connect):
    seen = []
    connect(lambda **given: seen.append(given))
    assert send(handler, {"order": 7}) == Succeeded(1)
    (given,) = seen
    assert given.pop("signal") is paid
    assert given.pop("sender") is EventHandler
    assert given.pop("context").id == "job-1"
    assert given == {"event": "order.paid", "data": {"order": 7}}


def test_a_receiver_may_ask_for_jobs_only(handler, connect):
    seen = []
    connect(lambda **_: seen.append("ours"), sender=EventHandler)
    connect(lambda **_: seen.append("another's"), sender=Succeeded)
    assert send(handler) == Succeeded(1)
    assert seen == ["ours"]


def test_an_event_nobody_listens_to_is_sent_all_the_same(handler):
    assert send(handler) == Succeeded(0)
    assert attempt(handler, {"name": "order.paid"}) == Succeeded(0)


def refuses(**_given):
    raise ValueError(f"password={PASSWORD} is wrong")


def is_broken(**_given):
    raise KeyError("stock")


def test_failing_receivers_are_named_and_the_others_run(handler, connect):
    seen = []
    for receiver in (refuses, lambda **_: seen.append(True), is_broken):
        connect(receiver)
    outcome = send(handler)
    assert isinstance(outcome, Failed)
    assert seen == [True]
    assert outcome.error.type == "django_jobs.exceptions.EventFailed"
    assert outcome.error.message == (
        "2 of 3 receivers of the event 'order.paid' failed: "
        f"{__name__}.refuses: ValueError: password=•••• is wrong; "
        f"{__name__}.is_broken: KeyError: 'stock'"
    )
    for told in ("in refuses", "in is_broken"):
        assert told in outcome.error.traceback
    assert PASSWORD not in str(outcome)


def test_receivers_that_agree_may_steer_the_job(handler, connect):
    def snoozes(**_given):
        raise Snooze(60)

    connect(snoozes)
    assert isinstance(send(handler), Snoozed)
    connect(is_broken)
    assert isinstance(send(handler), Failed)


def test_a_coroutine_may_receive(handler, connect):
    seen = []

    async def receiver(**given):
        seen.append(given["event"])

    connect(receiver)
    assert send(handler) == Succeeded(1)
    assert seen == ["order.paid"]


@pytest.mark.parametrize(
    "payload",
    [
        None, "order.paid", ["order.paid"], {}, {"name": 5}, {"data": 1},
        {"name": "order.paid", "sender": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_h11_a_payload_of_another_shape_is_invalid(handler, payload):
    for check in (handler.validate, handler.admit):
        with pytest.raises(InvalidPayload, match="of the form"):
            check(payload)


@pytest.mark.parametrize("name", ["order.payd", "", f"{HERE}.paid", "order.paid\n"], ids=repr)
def test_an_event_that_is_not_listed_is_refused(handler, name):
    for check in (handler.validate, handler.admit):
        with pytest.raises(HandlerRefused, match="not in ALLOWED_EVENTS"):
            check({"name": name})


def test_nothing_is_allowed_by_default(settings):
    settings.DJANGO_JOBS = {}
    with pytest.raises(HandlerRefused):
        EventHandler().validate({"name": f"{HERE}.paid"})


def test_an_event_is_found_anew_when_the_settings_change(handler, settings):
    assert send(handler) == Succeeded(0)
    settings.DJANGO_JOBS = {"ALLOWED_EVENTS": {"order.paid": f"{HERE}.not_a_signal"}}
    outcome = send(handler)
    assert isinstance(outcome, Failed)
    assert "is a object, not a django.dispatch.Signal" in outcome.error.message


def test_a_path_leads_to_a_signal_or_to_the_reason_why_not():
    assert EventHandler.key == "event"
    signal, why = find_signal("django.core.signals.request_started")
    assert (type(signal).__name__, why) == ("Signal", "")
    signal, why = find_signal("nowhere.at.all")
    assert signal is None
    assert why.startswith("cannot be imported: ")
    assert find_signal("os.path.join") == (None, "is a function, not a django.dispatch.Signal")


@pytest.mark.parametrize("count", [1, 10, 11])
def test_the_first_ten_receivers_that_failed_are_named(handler, connect, count):
    def fussy():
        def receiver(**given):
            raise ValueError("not like this")

        return receiver

    for _ in range(count):
        connect(fussy())
    outcome = send(handler)
    assert outcome.error.message.count(": ValueError: not like this") == min(count, 10)


def test_its_name_decides_who_gets_the_data_of_an_event(handler):
    assert handler.destination({"name": "order.paid", "data": PASSWORD}) == "order.paid"
