"""What the settings say of circuit breakers."""

import pytest

from django_jobs.conf import HandlerBreakerConfig, read


def read_one(value):
    return read({"CIRCUIT_BREAKER": value}, secret_key="s")


def test_what_is_left_out_keeps_its_default():
    settings, problems = read_one({"THRESHOLD": 2})
    breaker = settings.circuit_breaker
    assert problems == []
    assert (breaker.threshold, breaker.cooldown, breaker.rejections) == (2, 60.0, 10)
    assert dict(breaker.handlers) == {}


def test_the_breaker_of_a_handler_says_what_it_does_otherwise():
    handlers = {"shop.jobs.pay": {"COOLDOWN": 5}, "shop.jobs.send": {}}
    settings, problems = read_one({"HANDLERS": handlers, "REJECTIONS": None})
    breaker = settings.circuit_breaker
    assert problems == []
    assert breaker.handlers["shop.jobs.pay"] == HandlerBreakerConfig(None, 5.0)
    assert breaker.handlers["shop.jobs.send"] == HandlerBreakerConfig()
    assert breaker.rejections is None


@pytest.mark.parametrize(
    ("value", "path", "told"),
    [
        ({"REJECTIONS": 0}, "CIRCUIT_BREAKER['REJECTIONS']", "0"),
        ({"HANDLERS": ["a.b"]}, "CIRCUIT_BREAKER['HANDLERS']", "list"),
        ({"HANDLERS": {"a.b": {"COOLDOWN": 0}}}, "CIRCUIT_BREAKER['HANDLERS']['a.b']", "0"),
        ({"HANDLERS": {"a.b": {"REJECTIONS": 3}}}, "CIRCUIT_BREAKER['HANDLERS']", "unknown key"),
    ],
)
def test_what_makes_no_sense_is_refused(value, path, told):
    _, (problem,) = read_one(value)
    assert problem.subject.startswith(path)
    assert told in str(problem)
