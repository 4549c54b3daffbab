"""Which file a word means: the one that was allowed, whatever PATH, links and directories say."""

import os
import shutil

import pytest

from django_jobs.exceptions import HandlerRefused, InvalidPayload
from django_jobs.handlers.shell.handler import ShellHandler
from django_jobs.outcome import Failed, Succeeded
from tests.unit.handlers.attempts import attempt

DATE = shutil.which("date", path="/usr/bin:/bin")


@pytest.fixture
def allow(settings):
    def allow(*entries, **surroundings):
        settings.DJANGO_JOBS = {"ALLOWED_SHELL_COMMANDS": [*entries], "SHELL": surroundings}
        return ShellHandler()

    return allow


@pytest.fixture
def named(tmp_path):
    """Many names of one file, which is a shell and so tells the name it was started by."""

    def named(*names):
        for name in names:
            link = tmp_path / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to("/bin/sh")
        return str(tmp_path)

    return named


def name_told(handler, path):
    """What a program was told that its name is."""
    outcome = attempt(handler, [path, "-c", "echo $0"])
    assert isinstance(outcome, Succeeded), outcome
    return outcome.output.strip()


def refused(handler, payload):
    for check in (handler.validate, handler.admit):
        with pytest.raises(HandlerRefused, match="not in ALLOWED_SHELL_COMMANDS"):
            check(payload)
    outcome = attempt(handler, payload)
    assert isinstance(outcome, Failed)
    assert outcome.error.type == "django_jobs.exceptions.HandlerRefused"


def test_a_program_is_allowed_by_its_path_or_by_its_name(allow):
    handler = allow(DATE)
    for payload in ([DATE, "+yes"], ["date", "+yes"], "date +yes"):
        handler.validate(payload)
        assert attempt(handler, payload) == Succeeded(None, "yes\n")


def test_nothing_is_allowed_by_default(settings):
    settings.DJANGO_JOBS = {}
    refused(ShellHandler(), [DATE])


@pytest.mark.parametrize(
    "word",
    ["sh", "/bin/sh", "./date", "../bin/date", "bin/date", "~/date", "DATE", "date\n", " date"],
)
def test_h10_every_other_program_is_refused(allow, word, monkeypatch):
    monkeypatch.chdir("/usr")
    refused(allow(DATE), [word, "-c", "true"])


def test_the_path_of_the_worker_and_its_directory_do_not_matter(allow, script, monkeypatch):
    evil = script("print('evil')", "date")
    folder = evil.removesuffix("/date")
    monkeypatch.setenv("PATH", folder)
    monkeypatch.chdir(folder)
    handler = allow(DATE)
    assert attempt(handler, ["date", "+good"]) == Succeeded(None, "good\n")
    refused(handler, [evil])
    refused(handler, ["./date"])


def test_a_name_is_looked_up_where_the_settings_say(allow, script):
    own = script("print('own')", "date")
    handler = allow(own, PATH=[own.removesuffix("/date"), "/usr/bin"])
    assert attempt(handler, ["date"]) == Succeeded(None, "own\n")
    refused(allow(own), ["date"])


def test_h10_a_link_is_followed_once_and_what_it_led_to_is_started(allow, named):
    folder = named("one", "two")
    real = os.path.realpath("/bin/sh")
    # The name it is started by is that of the allow-list, whatever the job says.
    assert name_told(allow(real), f"{folder}/one") == real
    assert name_told(allow(f"{folder}/one"), real) == f"{folder}/one"
    assert name_told(allow(f"{folder}/one"), f"{folder}/two") == f"{folder}/one"


def test_a_link_that_leads_elsewhere_by_now_is_not_what_was_allowed(allow, named, tmp_path):
    folder = named("one")
    handler = allow(os.path.realpath("/bin/sh"))
    handler.validate([f"{folder}/one"])
    (tmp_path / "one").unlink()
    (tmp_path / "one").symlink_to(DATE)
    refused(handler, [f"{folder}/one", "-c", "true"])


def test_one_file_with_many_names_is_allowed_under_those_that_are_listed(allow, named):
    folder = named("ls", "date", "sh", "else/ls", "else/sh")
    handler = allow(f"{folder}/ls", f"{folder}/date")
    assert name_told(handler, f"{folder}/ls") == f"{folder}/ls"
    assert name_told(handler, f"{folder}/date") == f"{folder}/date"
    assert name_told(handler, f"{folder}/else/ls") == f"{folder}/ls"
    for other in ("sh", "else/sh"):
        refused(handler, [f"{folder}/{other}"])


def test_a_name_that_fits_several_entries_is_refused(allow, named):
    folder = named("a/ls", "b/ls", "c/ls")
    handler = allow(f"{folder}/a/ls", f"{folder}/b/ls")
    assert name_told(handler, f"{folder}/b/ls") == f"{folder}/b/ls"
    refused(handler, [f"{folder}/c/ls"])


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (["+%Y"], True),
        (["-u", "+%Y"], True),
        ([], False),
        (["+%Y", "-u"], False),
        (["+%Y\n"], False),
    ],
    ids=str,
)
def test_h10_arguments_are_held_to_their_forms(settings, given, fits):
    settings.DJANGO_JOBS = {"ALLOWED_SHELL_COMMANDS": {DATE: [[r"\+%\w"], ["-u", r"\+%\w"]]}}
    handler = ShellHandler()
    if fits:
        handler.admit(["date", *given])
    else:
        with pytest.raises(HandlerRefused, match=f"{DATE!r} may not be given these {len(given)}"):
            handler.admit(["date", *given])


def test_where_the_program_is_missing_it_may_be_enqueued_and_fails_at_run(allow):
    handler = allow("/usr/bin/no-such-program")
    handler.validate(["/usr/bin/no-such-program"])
    outcome = attempt(handler, ["/usr/bin/no-such-program"])
    assert isinstance(outcome, Failed)
    assert outcome.error.message == "/usr/bin/no-such-program is not there, or cannot be started"


def test_a_payload_that_is_no_command_line_is_invalid(allow):
    for payload in (None, {}, [], "", [DATE, None], [DATE, "a\0b"], {"command": DATE}):
        with pytest.raises(InvalidPayload):
            allow(DATE).validate(payload)


def test_two_files_that_are_not_there_are_not_the_same(allow):
    with pytest.raises(HandlerRefused):
        allow("/nowhere/a").validate(["/nowhere/b"])
