"""What a handler prints: kept per attempt, capped, and never in the way of the next."""

import contextvars
import io
import sys
import threading
import tracemalloc
from contextlib import redirect_stdout

import pytest

from django_jobs.execution import output
from django_jobs.execution.output import (
    MAX_OUTPUT,
    Captured,
    captured_output,
    keep_routers,
)
from django_jobs.redaction import HIDDEN


def test_stdout_and_stderr_are_kept_in_the_order_of_writing(capsys):
    with captured_output() as captured:
        print("out")
        print("err", file=sys.stderr)
        sys.stdout.writelines(["a", "b\n"])
    assert captured.text() == "out\nerr\nab\n"
    assert capsys.readouterr() == ("", "")


def test_before_and_after_the_streams_are_the_real_ones(capsys):
    before = sys.stdout, sys.stderr
    print("before")
    with captured_output():
        print("inside")
    print("after")
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "before\nafter\n"


def test_they_come_back_after_an_exception_too():
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError, match="no"), captured_output():
        raise ValueError("no")
    assert (sys.stdout, sys.stderr) == before


def test_two_attempts_at_once_keep_their_output_apart():
    both = threading.Barrier(2, timeout=10)
    told = {}

    def attempt(name):
        with captured_output() as captured:
            both.wait()
            print(f"I am {name}")
            both.wait()
            print(f"still {name}")
        told[name] = captured.text()

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(attempt, name))
        for name in ("one", "two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == {name: f"I am {name}\nstill {name}\n" for name in ("one", "two")}


def test_an_attempt_inside_another_keeps_its_own():
    with captured_output() as outer:
        print("outer")
        with captured_output() as inner:
            print("inner")
        print("outer again")
    assert inner.text() == "inner\n"
    assert outer.text() == "outer\nouter again\n"


def test_what_is_too_much_is_counted_and_dropped():
    captured = Captured(10)
    for text in ("12345", "67890abc", "", "def"):
        captured.write(text)
    assert captured.text() == "1234567890\n… 6 more characters were not kept"


def test_what_just_fits_is_kept_without_a_note():
    captured = Captured(10)
    captured.write("1234567890")
    assert captured.text() == "1234567890"


def test_the_limit_is_64_kib():
    with captured_output() as captured:
        print("x" * (MAX_OUTPUT + 1), end="")
    assert MAX_OUTPUT == 64 * 1024
    assert captured.text() == "x" * MAX_OUTPUT + "\n… 1 more characters were not kept"


def test_a_hundred_megabytes_printed_do_not_grow():
    line = "x" * (1024 * 1024)
    tracemalloc.start()
    try:
        with captured_output() as captured:
            for _ in range(100):
                print(line, end="")
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024
    assert len(captured.text()) < MAX_OUTPUT + 100


def test_many_odd_characters_do_not_grow_past_the_limit_as_escapes():
    with captured_output() as captured:
        print("\0" * MAX_OUTPUT, end="")
    assert len(captured.text()) < MAX_OUTPUT + 100
    assert captured.text().startswith("\\x00\\x00")


@pytest.mark.parametrize(
    ("odd", "shown"),
    [("\0", "\\x00"), ("\ud800", "\\ud800"), ("\x1b[31m", "\\x1b[31m"), ("\r", "\\r")],
    ids=["nul", "surrogate", "escape", "return"],
)
def test_odd_characters_are_shown_as_escapes(odd, shown):
    with captured_output() as captured:
        print(odd, end="")
    assert captured.text() == shown


def test_tabs_line_ends_and_other_scripts_stay():
    with captured_output() as captured:
        print("\tGrüße 你好 😀")
    assert captured.text() == "\tGrüße 你好 😀\n"


def test_a_redirect_of_the_handler_works_as_ever():
    with captured_output() as captured:
        with redirect_stdout(io.StringIO()) as own:
            print("mine")
        print("captured")
    assert own.getvalue() == "mine\n"
    assert captured.text() == "captured\n"


def test_a_stream_that_a_handler_left_behind_does_not_hurt_the_next():
    before = sys.stdout, sys.stderr
    with captured_output():
        sys.stdout = io.StringIO()
        sys.stdout.close()
        sys.stderr = None
    assert (sys.stdout, sys.stderr) == before
    with captured_output() as captured:
        print("fine", flush=True)
    assert captured.text() == "fine\n"


def test_bytes_are_refused_as_by_any_text_stream():
    with captured_output() as captured:
        with pytest.raises(TypeError, match="must be str, not bytes"):
            sys.stdout.write(b"bytes")
        sys.stdout.flush()
        assert isinstance(sys.stdout.encoding, str)
    assert captured.text() == ""


def test_where_the_routers_are_kept_they_come_back_after_each_attempt(monkeypatch, capsys):
    monkeypatch.setattr(output, "_streams", output._Streams())
    for name in ("stdout", "stderr"):  # put back when the test is over
        monkeypatch.setattr(sys, name, getattr(sys, name))
    keep_routers()
    kept = sys.stdout, sys.stderr
    with captured_output() as captured:
        print("mine")
        sys.stdout = sys.stderr = None
    assert (sys.stdout, sys.stderr) == kept
    print("everybody's")
    assert captured.text() == "mine\n"
    assert capsys.readouterr().out == "everybody's\n"


def test_a_secret_is_not_kept_also_when_it_was_cut_off_or_printed_in_parts():
    captured = Captured(40)
    for text in ("pass", "word=", "'s3cret", " s3cret", "; and then it went on", " for long"):
        captured.write(text)
    assert captured.text() == f"password={HIDDEN}\n… 13 more characters were not kept"
