"""How commands show things: nothing raw, times in words, drawn tables only in a terminal."""

import builtins
import io
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management.base import OutputWrapper

from django_jobs.management import arguments, output
from django_jobs.management.base import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Pipe(io.StringIO):
    encoding = "ascii"


@pytest.fixture
def without_rich(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.partition(".")[0] == "rich":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)


def table_on(stream):
    out = output.Output(OutputWrapper(stream), colour=False)
    out.table(("id", "text"), [(1, "[bold]a\x1b[31m\nb"), (22, "ü")])
    return stream.getvalue()


def test_a_pipe_gets_aligned_text():
    assert table_on(io.StringIO()) == "id  text\n1   [bold]a\\x1b[31m\\nb\n22  ü\n"


def test_a_line_keeps_its_ends_and_nothing_else_that_moves_the_cursor():
    stream = io.StringIO()
    output.Output(OutputWrapper(stream)).line("a\nb\x1b[2J\r\u202ec")
    assert stream.getvalue() == "a\nb\\x1b[2J\\r\\u202ec\n"


def test_what_the_encoding_cannot_say_is_written_out():
    assert table_on(Pipe()).endswith("22  \\xfc\n")


def test_a_terminal_gets_a_drawn_table():
    pytest.importorskip("rich")
    drawn = table_on(Terminal())
    assert "━" in drawn
    assert "[bold]a\\x1b[31m\\nb" in drawn


def test_a_terminal_without_rich_gets_aligned_text(without_rich):
    assert table_on(Terminal()).startswith("id  text\n")


def test_json_is_ascii_without_control_characters():
    stream = io.StringIO()
    output.Output(OutputWrapper(stream)).document(["ü\x7f\x1b\x00"])
    assert stream.getvalue() == '[\n  "\\u00fc\\u007f\\u001b\\u0000"\n]\n'


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (60, "1 min"), (61, "61 s"), (130, "2 min"), (7200, "2 h"), (432_000, "5 d")],
)
def test_lengths_of_time(seconds, words):
    assert output.span(seconds) == words


def test_moments_in_words():
    told = [output.from_now(seconds) for seconds in (180, -7200, 0.5)]
    assert told == ["in 3 min", "2 h ago", "now"]


def test_moments_of_a_site_without_time_zones(settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Vienna"
    assert output.iso(datetime(2026, 7, 1, 12)) == "2026-07-01T10:00:00+00:00"  # noqa: DTZ001 - as such a site has it
    assert output.iso(0) == "1970-01-01T00:00:00+00:00"
    assert output.iso(None) is None


def test_texts_are_shortened_to_a_line():
    assert output.shortened("a\nb") == "a …"
    assert output.shortened("x" * 100) == "x" * 59 + "…"
    assert output.escaped("\ud800\u202e\u2028") == "\\ud800\\u202e\\u2028"


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_without_rich(without_rich, stream):
    written = stream()
    with progress(OutputWrapper(written), 100, "replay") as advance:
        for _ in range(100):
            advance(1)
    assert written.getvalue().splitlines() == [f"replay: {n} of 100" for n in range(10, 101, 10)]


def test_progress_with_rich(capsys):
    pytest.importorskip("rich")
    with progress(OutputWrapper(Terminal()), 60, "replay") as advance:
        advance(60)
    assert "60/60" in capsys.readouterr().err


def test_few_have_no_progress():
    written = io.StringIO()
    with progress(OutputWrapper(written), 50, "replay") as advance:
        advance(50)
    assert written.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_durations(text, length):
    assert arguments.duration(text) == length


@pytest.mark.parametrize(
    "text", ["", "7", "-7d", "7 d", "1.5h", "7D", "\u0667d", "d", "999999999999w"]
)
def test_no_durations(text):
    with pytest.raises(ArgumentTypeError):
        arguments.duration(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e300"])
def test_no_seconds(text):
    with pytest.raises(ArgumentTypeError):
        arguments.seconds(text)


def test_an_expiry_is_a_length_or_a_moment():
    assert arguments.expiry("90") == 90
    assert arguments.expiry("2h") == 7200
    assert arguments.expiry("2026-01-01T00:00:00Z") == datetime(2026, 1, 1, tzinfo=UTC)
