"""Exceptions as the log gets them: where they came from, and nothing that is not to be seen."""

import logging
import traceback

import pytest
from django.test import RequestFactory
from django.views.debug import ExceptionReporter

from django_jobs.telemetry.errors import MOST_EXCEPTIONS, cleaned
from django_jobs.telemetry.json_lines import JsonFormatter

SECRET = "hunter" + "2"  # the lines of code are shown, and so it stands in none
FORGED = f"password={SECRET} \x1b[2J\u202e\nCRITICAL django_jobs all keys were revoked"


class Own(Exception):
    pass


def refuse(text):
    kept = text  # noqa: F841 - a variable that no reader of the log is to see
    raise Own(text)


def raised(text=FORGED):
    try:
        try:
            refuse(text)
        except Own as error:
            error.add_note(text)
            raise ValueError(text) from error
    except ValueError as error:
        return error


def several():
    return ExceptionGroup(FORGED, [raised(), ExceptionGroup(FORGED, [Own(FORGED)])])


def plain(error):
    return logging.Formatter().formatException((type(error), error, error.__traceback__))


def as_json(error):
    info = (type(error), error, error.__traceback__)
    return JsonFormatter().format(logging.makeLogRecord({"exc_info": info}))


def as_mailed_by_django(error):
    reporter = ExceptionReporter(
        RequestFactory().get("/"), type(error), error, error.__traceback__, is_email=True
    )
    return reporter.get_traceback_text() + reporter.get_traceback_html()


def with_variables(error):
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(told.format())


FORMATS = [plain, as_json, with_variables, as_mailed_by_django]


@pytest.mark.parametrize("make", [raised, several])
@pytest.mark.parametrize("shown_by", FORMATS)
def test_whoever_formats_it_finds_neither_a_secret_nor_a_line_of_others(shown_by, make):
    assert SECRET in shown_by(make())
    shown = shown_by(cleaned(make()))
    assert SECRET not in shown
    assert not {"\x1b", "\u202e"} & set(shown)
    assert not [line for line in shown.splitlines() if line.lstrip(" |").startswith("CRITICAL")]


def test_its_name_and_its_places_are_those_of_the_original():
    original, copy = plain(raised("no")), plain(cleaned(raised("no")))
    not_underlines = [line for line in original.split("\n") if line.strip(" ^~") or not line]
    assert copy == "\n".join(not_underlines)


@pytest.mark.parametrize("error", [Own("no"), KeyError("no"), BaseExceptionGroup("g", [Own("n")])])
def test_its_class_has_the_same_name(error):
    kind, copy = type(error), type(cleaned(error))
    assert (copy.__module__, copy.__qualname__) == (kind.__module__, kind.__qualname__)
    assert str(cleaned(error)) == str(error)


class NoNotes(Exception):
    @property
    def __notes__(self):
        raise RuntimeError


class NoCause(Exception):
    @property
    def __cause__(self):
        raise RuntimeError


class NoText:
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("kind", [NoNotes, NoCause])
def test_of_one_whose_class_is_broken_the_text_is_left(kind):
    assert str(cleaned(kind(FORGED))).startswith("password=•••• ")


def test_a_note_that_is_no_text_spoils_nothing():
    error = Own("it")
    error.__notes__ = [NoText(), "more"]
    assert plain(cleaned(error)).endswith("Own: it\n<its text raised RuntimeError>\nmore")


def test_no_frame_leads_to_a_variable_or_to_another_frame():
    error = cleaned(raised())
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            assert (trace.tb_frame.f_locals, trace.tb_frame.f_back) == ({}, None)
            assert trace.tb_frame.f_globals.keys() <= {"__name__", "__loader__", "__builtins__"}
            trace = trace.tb_next
        error = error.__cause__


def test_what_was_silenced_stays_silent():
    def loud():
        try:
            refuse("first")
        except Own:
            raise ValueError("second") from None

    with pytest.raises(ValueError, match="second") as caught:
        loud()
    assert "first" not in plain(cleaned(caught.value))


def test_exceptions_that_lead_back_to_themselves_end():
    first, second = Own("first"), Own("second")
    first.__cause__, second.__cause__ = second, first
    assert plain(cleaned(first)).count("Own: ") == 2


def test_of_very_many_only_some_are_kept():
    error = None
    for number in range(10 * MOST_EXCEPTIONS):
        above = Own(number)
        above.__cause__ = error
        error = above
    assert plain(cleaned(error)).count("Own: ") == MOST_EXCEPTIONS
    wide = ExceptionGroup("wide", [Own(number) for number in range(10 * MOST_EXCEPTIONS)])
    assert len(cleaned(wide).exceptions) == MOST_EXCEPTIONS - 1


def test_an_exception_whose_text_or_name_is_broken_is_told_all_the_same():
    def broken(_self):
        raise RuntimeError

    odd = type("Odd\nName", (Exception,), {"__str__": broken, "__notes__": 5})()
    assert plain(cleaned(odd)).endswith("Odd\\nName: <its text raised RuntimeError>")


def test_a_huge_text_is_cut():
    assert len(str(cleaned(Own("x" * 1_000_000)))) < 5000
