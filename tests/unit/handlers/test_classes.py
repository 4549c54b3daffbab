"""Handlers as classes: registered by @job or named in settings, with typed payloads."""

import pytest

from django_jobs import JobContext, JobHandler, TypedContext, define, job
from django_jobs.exceptions import ConfigurationError, InvalidJob, InvalidOption, InvalidPayload
from django_jobs.handlers.registry import Registry, register_configured, registry
from django_jobs.outcome import Failed, Succeeded
from tests.unit.handlers import payloads_of_tests as own
from tests.unit.handlers.attempts import attempt
from tests.unit.handlers.payloads_of_tests import Count, Mail, SendMail, Unregistered

KEY = f"{own.__name__}.SendMail"


@pytest.fixture(autouse=True)
def seen():
    own.seen.clear()
    return own.seen


def handler():
    return registry.find(KEY)


def test_it_is_registered_by_its_path_or_a_key_of_its_own():
    assert handler().target.__class__ is SendMail
    assert registry.find("tests.count").is_coroutine
    assert not handler().is_coroutine
    assert handler().options.queue == "mail"
    assert registry.options_of(KEY).max_retries == 2


def test_a_run_sees_the_dataclass_in_a_context_and_the_hooks_do_too(seen):
    outcome = attempt(handler(), {"to": "a@b", "copies": 2})
    assert outcome == Succeeded("2 to a@b")
    before, context, after = seen
    assert isinstance(context, TypedContext)
    assert isinstance(context, JobContext)
    assert (context.id, context.name, context.attempt) == ("job-1", "a name", 1)
    assert before == ("before", Mail("a@b", 2))
    assert after == ("after", Mail("a@b", 2), None)


def test_a_coroutine_is_awaited():
    assert attempt(registry.find("tests.count"), [1, 2, 3]) == Succeeded(6)


def test_what_it_is_about_to_retry_on_is_the_classs(seen):
    assert handler().retry_on == (OSError,)
    outcome = attempt(handler(), {"to": "nobody"})  # its dataclass refuses that
    assert isinstance(outcome, Failed)
    assert not outcome.retryable


def test_the_payload_is_checked_and_written_when_a_job_is_made():
    assert SendMail.prepare(Mail("a@b")).payload == {"to": "a@b", "copies": 1}
    assert SendMail.using(delay=5).prepare(Mail("a@b", 3)).payload == {"to": "a@b", "copies": 3}
    assert define(KEY, Mail("a@b")).prepare().payload == {"to": "a@b", "copies": 1}
    assert define(KEY, {"to": "a@b"}).prepare().payload == {"to": "a@b", "copies": 1}
    assert Count.prepare([1]).payload == [1]
    for wrong in (None, "a@b", {}, {"to": "a@b", "cc": "x"}, {"to": 5}, {"to": "nobody"}, [1]):
        with pytest.raises(InvalidPayload, match=KEY):
            SendMail.prepare(wrong)
        with pytest.raises(InvalidPayload, match=KEY):
            define(KEY, wrong).prepare()
    with pytest.raises(InvalidPayload, match=r"payload\[1\] is of type str, not int"):
        Count.prepare([1, "2"])


def test_an_admission_looks_at_types_and_runs_nothing_of_the_users(seen):
    handler().admit({"to": "nobody"})
    for wrong in (None, {}, {"to": "a@b", "cc": "x"}, {"to": 5}):
        with pytest.raises(InvalidPayload):
            handler().admit(wrong)
    assert seen == []


def test_options_are_those_of_the_decorator_and_of_using():
    assert SendMail.prepare(Mail("a@b")).plan.options.max_retries == 2
    prepared = SendMail.using(max_retries=7, queue="other").prepare(Mail("a@b"))
    assert (prepared.plan.options.max_retries, prepared.plan.options.queue) == (7, "other")
    with pytest.raises(InvalidOption, match="did you mean 'priority'"):
        SendMail.using(priorty=1)


def test_a_class_that_is_not_registered_or_only_its_parent_is_cannot_be_enqueued():
    class Child(SendMail):
        pass

    for unregistered in (Unregistered, Child):
        with pytest.raises(InvalidJob, match=f"{unregistered.__name__} is no handler yet"):
            unregistered.enqueue(Mail("a@b"))


def test_a_class_that_does_not_say_what_it_takes_is_refused():
    class Vague(JobHandler):
        def handle(self, context):
            return None

    with pytest.raises(InvalidJob, match=r"JobHandler\[Payload, Result\]"):
        job(key="tests.vague")(Vague)
    assert "tests.vague" not in registry


def test_a_class_always_takes_the_context():
    with pytest.raises(InvalidOption, match="takes_context is for functions"):
        job(takes_context=True, key="tests.x")(Unregistered)


def test_a_class_without_handle_is_registered_and_fails():
    class Lazy(JobHandler[int, None]):
        pass

    job(key="tests.lazy")(Lazy)
    outcome = attempt(registry.find("tests.lazy"), 1)
    assert "Lazy has no handle(context)" in outcome.error.message


def test_settings_may_name_a_class_which_can_then_be_enqueued():
    named = Registry()
    register_configured({"mail": f"{own.__name__}.Unregistered"}, named)
    assert attempt(named.find("mail"), {"to": "a@b"}) == Succeeded(None)
    assert own.seen == [Mail("a@b")]
    assert Unregistered.prepare(Mail("a@b")).plan.handler == "mail"
    del Unregistered._jobs


def test_settings_may_name_a_registered_class_by_another_key_too():
    named = Registry()
    register_configured({"mail": KEY}, named)
    assert attempt(named.find("mail"), {"to": "a@b"}) == Succeeded("1 to a@b")
    assert SendMail.prepare(Mail("a@b")).plan.handler == KEY


def test_a_second_class_of_one_key_is_refused_and_the_same_one_is_not():
    again = job(key="tests.again")(type("Again", (Unregistered,), {}))
    job(key="tests.again")(again)
    with pytest.raises(ConfigurationError, match="two handlers"):
        job(key="tests.again")(type("Again", (SendMail,), {}))
