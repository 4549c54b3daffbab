"""Management commands: those that are allowed, as they are allowed, and how they end."""

import pytest
from django.core.management import BaseCommand, CommandError, get_commands

from django_jobs.exceptions import HandlerRefused, InvalidPayload
from django_jobs.execution.output import MAX_OUTPUT
from django_jobs.handlers.command import CommandHandler
from django_jobs.outcome import Failed, Succeeded
from tests.unit.handlers.attempts import attempt

PASSWORD = "hunter" + "2"


class Greet(BaseCommand):
    """What a site might have."""

    def add_arguments(self, parser):
        parser.add_argument("names", nargs="*")
        parser.add_argument("--times", type=int, default=1)
        parser.add_argument("--ends", default="")

    def handle(self, *args, **options):
        self.stdout.write(f"hello {' '.join(options['names'])}! " * options["times"])
        self.stderr.write(self.style.ERROR("to whom it may concern"))
        ending = options["ends"]
        if ending.startswith("exit:"):
            raise SystemExit(int(ending.removeprefix("exit:")))
        if ending == "silent":
            raise SystemExit
        if ending == "words":
            raise SystemExit("gave up")
        if ending == "error":
            raise CommandError(f"no such user, secret: {PASSWORD}", returncode=4)
        return "done"


@pytest.fixture
def handler(settings, monkeypatch):
    settings.DJANGO_JOBS = {"ALLOWED_COMMANDS": ["greet"]}
    monkeypatch.setitem(get_commands(), "greet", Greet())
    return CommandHandler()


def test_it_runs_with_its_arguments_and_its_output_is_kept(handler):
    outcome = attempt(handler, ["greet", "Ada", 7, "--times", "2"])
    assert outcome == Succeeded(None, "hello Ada 7! hello Ada 7! \nto whom it may concern\ndone\n")


def test_a_text_is_split_at_white_space(handler):
    assert attempt(handler, "greet  Ada\t'Eve Moneypenny'").output.startswith(
        "hello Ada 'Eve Moneypenny'! "
    )


def test_its_output_is_capped(handler):
    output = attempt(handler, ["greet", "x" * 40_000, "y" * 40_000]).output
    assert len(output) < MAX_OUTPUT + 100
    assert "more characters were not kept" in output


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ("exit:3", "the command 'greet' ended with exit code 3"),
        ("words", "the command 'greet' ended with gave up"),
        ("error", "no such user, secret: ••••"),
    ],
)
def test_h10_what_ends_badly_is_a_failure(handler, ends, told):
    outcome = attempt(handler, ["greet", "Ada", f"--ends={ends}"])
    assert isinstance(outcome, Failed)
    assert outcome.error.message == told
    assert outcome.retryable
    assert "hello Ada" in outcome.output
    assert PASSWORD not in str(outcome)


def test_exit_code_0_is_a_success(handler):
    assert isinstance(attempt(handler, ["greet", "--ends=exit:0"]), Succeeded)


def test_wrong_arguments_are_a_failure_that_does_not_show_a_password(handler):
    outcome = attempt(handler, ["greet", f"--password={PASSWORD}"])
    assert isinstance(outcome, Failed)
    assert "unrecognized arguments: --password=••••" in outcome.error.message
    assert PASSWORD not in str(outcome)


@pytest.mark.parametrize(
    "name",
    ["shell", "dbshell", "flush", "runserver", "greets", "gree", "GREET", "greet\n", " greet"],
)
def test_h10_what_is_not_named_is_refused(handler, name):
    for check in (handler.validate, handler.admit):
        with pytest.raises(HandlerRefused, match="not in ALLOWED_COMMANDS"):
            check([name])


@pytest.mark.parametrize("allowed", [[], {}, None])
def test_nothing_is_allowed_by_default(settings, allowed):
    settings.DJANGO_JOBS = {} if allowed is None else {"ALLOWED_COMMANDS": allowed}
    with pytest.raises(HandlerRefused):
        CommandHandler().validate(["clearsessions"])


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ([], True),
        (["Ada"], True),
        (["--times", "2"], True),
        (["--times", "22"], False),
        (["Ada", "Eve"], False),
        (["--ends=x"], False),
        (["Ada\n"], False),
    ],
    ids=str,
)
def test_h10_arguments_are_held_to_their_forms(handler, settings, given, fits):
    forms = [[], ["[A-Z][a-z]*"], ["--times", "[0-9]"]]
    settings.DJANGO_JOBS = {"ALLOWED_COMMANDS": {"greet": forms}}
    payload = ["greet", *given]
    if fits:
        handler.admit(payload)
        assert isinstance(attempt(handler, payload), Succeeded)
    else:
        with pytest.raises(HandlerRefused, match=f"may not be given these {len(given)} arg"):
            handler.admit(payload)


NO_COMMAND_LINES = [
    *(None, 5, True, {}, {"args": ["greet"]}, [], "", " ", [None], ["greet", None]),
    *(["greet", True], ["greet", 1.5], ["greet", ["x"]], ["greet", {}], ["greet", 10**5000]),
    *(["greet", "a\0b"], [""], ["greet"] * 1001, ["greet", "x" * 100_001]),
]


@pytest.mark.parametrize("number", range(len(NO_COMMAND_LINES)))
def test_h11_a_payload_that_is_no_command_line_is_invalid(handler, number):
    for check in (handler.validate, handler.admit):
        with pytest.raises(InvalidPayload) as refused:
            check(NO_COMMAND_LINES[number])
        assert len(str(refused.value)) < 300


def test_an_exit_without_a_code_is_none_that_failed(handler):
    assert handler.key == "command"
    assert isinstance(attempt(handler, ["greet", "--ends=silent"]), Succeeded)
    assert isinstance(attempt(handler, ["greet", "--ends=exit:0"]), Succeeded)


def test_no_colours_are_kept_whatever_the_command_would_like(handler, monkeypatch):
    monkeypatch.setitem(get_commands(), "greet", Greet(force_color=True))
    outcome = attempt(handler, ["greet", "ada"])
    assert "to whom it may concern" in outcome.output
    assert "\\x1b" not in outcome.output


def test_the_whole_command_line_decides_where_a_word_of_it_goes(handler):
    words = ["greet", "--password", PASSWORD, "--times", 2]
    assert handler.destination(words) == handler.destination([*words[:4], "2"])
    assert handler.destination(words) != handler.destination([*words[:4], "3"])
