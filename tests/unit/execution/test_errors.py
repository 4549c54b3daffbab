"""Exceptions as text: told fully, capped, and without what nobody should read."""

import re
import time

import pytest

from django_jobs.execution.errors import (
    MAX_MESSAGE,
    MAX_TRACEBACK,
    MAX_TYPE,
    capped,
    error_text,
    fingerprint,
    type_path,
)


class Own(Exception):
    pass


def caught(function, *args):
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001 - that is what is wanted
        return error
    raise AssertionError("it did not raise")


def raise_it(error):
    raise error


def test_type_message_and_traceback_are_told():
    text = error_text(caught(raise_it, Own("what happened")))
    assert text.type == f"{__name__}.Own"
    assert text.message == "what happened"
    assert text.traceback.startswith("Traceback (most recent call last):")
    assert "in raise_it" in text.traceback
    assert text.traceback.rstrip().endswith("Own: what happened")


def test_built_in_types_are_told_by_their_plain_name():
    assert type_path(ValueError) == "ValueError"


def test_an_odd_or_endless_type_name_can_be_stored():
    assert type_path(type("A\x1bB", (Exception,), {"__module__": "m"})) == "m.A\\x1bB"
    assert len(type_path(type("X" * 1000, (Exception,), {}))) == MAX_TYPE


def test_causes_and_contexts_are_told():
    def chained():
        try:
            raise_it(KeyError("first"))
        except KeyError as error:
            raise Own("second") from error

    traceback = error_text(caught(chained)).traceback
    assert "KeyError: 'first'" in traceback
    assert "direct cause of the following exception" in traceback


def test_groups_and_notes_are_told():
    error = ExceptionGroup("several", [ValueError("one"), Own("two")])
    error.add_note("in the morning")
    traceback = error_text(caught(raise_it, error)).traceback
    assert all(part in traceback for part in ("ValueError: one", "Own: two", "in the morning"))


def test_a_chain_that_leads_back_to_itself_ends():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert "ValueError: first" in error_text(caught(raise_it, first)).traceback


def test_local_variables_are_not_told():
    def handler():
        secret = "hunter" + "2"
        raise ValueError(len(secret))

    text = error_text(caught(handler))
    assert "hunter2" not in text.traceback + text.message


@pytest.mark.parametrize(
    "url",
    [
        "postgres://user:s3cret@db.local/jobs",
        "redis://:s3cret@cache:6379/0",
        "https://s3cret@api.example.com/v1?x=1",
        "amqp://user:p@ss:s3cret@mq//",
        "mysql://user:s3cret%2F@db",
    ],
)
def test_no_password_of_a_url_is_kept(url):
    def connect():
        try:
            raise_it(OSError(f"cannot reach {url}, giving up"))
        except OSError as error:
            raise Own(f"<{url}>") from error

    text = error_text(caught(connect))
    assert "s3cret" not in text.message + text.traceback
    assert "p@ss" not in text.message + text.traceback
    assert "://••••@" in text.message


@pytest.mark.parametrize(
    "url", ["https://example.com/users/me@home.org", "http://[::1]:8000/?to=a@b", "mail a@b.c"]
)
def test_an_address_elsewhere_is_no_password(url):
    assert error_text(ValueError(url)).message == url


@pytest.mark.parametrize(
    ("odd", "shown"),
    [("\0", "\\x00"), ("\ud800", "\\ud800"), ("\x1b[2J", "\\x1b[2J"), ("\u2028", "\\u2028")],
    ids=["nul", "surrogate", "escape", "line separator"],
)
def test_odd_characters_are_shown_as_escapes(odd, shown):
    text = error_text(caught(raise_it, Own(f"bad {odd} thing")))
    assert text.message == f"bad {shown} thing"
    assert f"bad {shown} thing" in text.traceback
    text.traceback.encode()


def test_a_huge_message_is_cut_in_its_middle_and_quickly():
    started = time.monotonic()
    text = error_text(caught(raise_it, Own("begin" + "x" * 50_000_000 + "end")))
    assert time.monotonic() - started < 5
    assert len(text.message) <= MAX_MESSAGE
    assert text.message.startswith("beginxxx")
    assert text.message.endswith("xxxend")
    assert "… cut …" in text.message
    assert len(text.traceback) <= MAX_TRACEBACK
    assert text.traceback.startswith("Traceback")


def test_endless_recursion_is_told_within_the_limit():
    def deeper():
        deeper()

    text = error_text(caught(deeper))
    assert text.type == "RecursionError"
    assert len(text.traceback) <= MAX_TRACEBACK


@pytest.mark.parametrize("nasty", [ValueError("inner"), SystemExit(1), RecursionError()])
def test_an_exception_that_cannot_be_printed_is_told_without_its_text(nasty):
    class Unprintable(Exception):
        def __str__(self):
            raise nasty

        __repr__ = __str__

    text = error_text(caught(raise_it, Unprintable()))
    assert text.message == f"<its text raised {type(nasty).__name__}>"
    assert "in raise_it" in text.traceback


def test_an_exception_whose_text_is_no_text_is_told_too():
    class Wrong(Exception):
        def __str__(self):
            return 5  # noqa: PLE0307 - wrong on purpose

    assert error_text(Wrong()).message == "<its text raised TypeError>"


def test_capping_keeps_beginning_and_end():
    assert capped("abc", 3) == "abc"
    assert capped("a" * 50 + "z" * 50, 40) == "a" * 15 + "\n… cut …\n" + "z" * 15


# -- fingerprints --------------------------------------------------------------------------------


def fail_for(number):
    raise Own(f"order {number} is broken")


def fail_elsewhere(number):
    raise Own(f"order {number} is broken")


def test_the_same_bug_has_the_same_fingerprint_whatever_its_numbers():
    found = {fingerprint("shop.pay", caught(fail_for, number)) for number in (1, 2, 30_000)}
    assert len(found) == 1
    assert re.fullmatch("[0-9a-f]{32}", found.pop())


def test_lines_that_move_do_not_change_it():
    source = "def handler():\n{blank}    raise ValueError('x')\n"
    found = set()
    for blank in ("", "\n" * 40):
        space = {}
        exec(compile(source.format(blank=blank), "/srv/app.py", "exec"), space)  # noqa: S102 - ours
        found.add(fingerprint("shop.pay", caught(space["handler"])))
    assert len(found) == 1


def test_another_place_type_or_handler_is_another_bug():
    error = caught(fail_for, 1)
    found = {
        fingerprint("shop.pay", error),
        fingerprint("shop.refund", error),
        fingerprint("shop.pay", caught(fail_elsewhere, 1)),
        fingerprint("shop.pay", caught(raise_it, ValueError())),
    }
    assert len(found) == 4


def test_a_fingerprint_can_be_had_of_anything():
    assert fingerprint("\ud800", ValueError())
