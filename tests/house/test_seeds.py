"""What the seeds page says is here exists, and what it says is planned does not.

A row whose state begins with "planned" names what is to come in its middle column; every other
name, and every name in a state's remark, has to be found in the code.
"""

import ast
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist
from django.core.management import get_commands, load_command_class

from django_jobs import conf
from django_jobs.conf.keys import ENVIRONMENT_KEY
from django_jobs.decorators import HandlerOptions, job
from django_jobs.models import JobState
from django_jobs.telemetry.logs import SENTENCES
from tests.house.findings import listed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "seeds.md"
STATES = re.compile(r"yes|(changed|left out): \S.*|planned: later(; \S.*)?", re.DOTALL)
ALSO_OF_JOB = {"key", "takes_context"}


@dataclass(frozen=True)
class Row:
    line: int
    here: str
    state: str

    @property
    def is_planned(self):
        return self.state.startswith("planned")


def rows():
    found = []
    for number, text in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), start=1):
        if text.startswith("| ") and not text.startswith("| There |"):
            cells = [cell.strip() for cell in text.strip("|").split(" | ")]
            assert len(cells) == 3, f"line {number} has {len(cells)} cells"
            found.append(Row(number, cells[1], cells[2].rstrip("| ")))
    return found


def names_in(text):
    return re.findall(r"`([^`]+)`", text)


def named(*, planned):
    """(line, name) of everything that has to be there, or must not be."""
    for row in rows():
        for name in names_in(row.here):
            if row.is_planned == planned:
                yield row.line, name
        if not planned:
            for name in names_in(row.state):
                if looks_like_ours(name):
                    yield row.line, name


def looks_like_ours(name):
    return any(pattern.fullmatch(name) for pattern in KINDS)


# --------------------------------------------------------------------------- kinds of names


def is_a_python_name(path):
    parts = path.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


def is_an_option(name):
    known = ALSO_OF_JOB | HandlerOptions.__annotations__.keys()
    return name in known


def is_a_setting(name):
    known = {field.upper() for field in conf.JobsSettings.__dataclass_fields__}
    return name in known


def is_a_setting_of_queues(name):
    known = {field.upper() for field in conf.QueueConfig._fields} - {"NAME"}
    return name in known


def is_a_command(name, rest):
    if name not in get_commands():
        return False
    parser = load_command_class("django_jobs", name).create_parser("manage.py", name)
    for word in rest.split():
        if word.startswith("--"):
            if word not in parser._option_string_actions:
                return False
        else:
            positional = [a for a in parser._actions if not a.option_strings]
            verbs = [action.choices for action in positional if action.choices]
            if not (verbs and word in verbs[0]):
                return False
            parser = verbs[0][word] if isinstance(verbs[0], dict) else parser
    return True


def is_a_field(model, field):
    try:
        apps.get_model("django_jobs", model)._meta.get_field(field)
    except (LookupError, FieldDoesNotExist):
        return False
    return True


def is_a_word_of(folder, word):
    """Whether some code in a folder of the package spells the word as a text of its own."""
    for path in (ROOT / "django_jobs" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value == word:
                return True
    return False


KINDS = {
    re.compile(r"(django_jobs(?:\.\w+)*)"): is_a_python_name,
    re.compile(r"@job\((\w+)=\)"): is_an_option,
    re.compile(r"([A-Z][A-Z_]+)"): is_a_setting,
    re.compile(r'QUEUES\[…\]\["([A-Z_]+)"\]'): is_a_setting_of_queues,
    re.compile(r"(jobs_\w+)((?: [\w-]+)*)"): is_a_command,
    re.compile(r"([A-Z]\w*[a-z])\.(\w+)"): is_a_field,
    re.compile(r"env ([A-Z_]+)"): lambda name: name == ENVIRONMENT_KEY,
    re.compile(r"status ([\w-]+)"): lambda word: is_a_word_of("worker", word),
    re.compile(r"reason ([\w-]+)"): lambda word: any(
        is_a_word_of(folder, word) for folder in ("worker", "wire")
    ),
    re.compile(r"state (\w+)"): lambda word: word in {state.label for state in JobState},
    re.compile(r"log ([\w.]+)"): lambda key: key in {known[0] for known in SENTENCES.values()},
}


def exists(name):
    for pattern, is_there in KINDS.items():
        if match := pattern.fullmatch(name):
            return is_there(*match.groups())
    raise AssertionError(f"`{name}` is no kind of name that this page may use")


# ------------------------------------------------------------------------------------ tests


DOCUMENTS = [
    "Architecture",
    "Concurrency and resilience",
    "PDO transport",
    "Retries and backoff",
    "QueueCTL",
]
THERE = [
    "django_jobs.job",
    "django_jobs.JobContext.attempt",
    "@job(queue=)",
    "@job(idempotency_key=)",
    "MAX_RETRIES",
    'QUEUES[…]["HANDLERS"]',
    'QUEUES[…]["RATE_LIMIT"]',
    "jobs_work",
    "jobs_work --once",
    "jobs_dlq replay --all",
    "Job.due",
    "status acked",
    "log job.dead",
]
NOT_THERE = [
    "django_jobs.nothing",
    "django_jobs.JobContext.nothing",
    "@job(nothing=)",
    "NOTHING_LIMIT",
    "jobs_work --nothing",
    "jobs_nothing",
    "jobs_dlq nothing",
    "Job.nothing",
    "status nothing",
    "log nothing",
]


def test_every_row_has_a_state():
    wrong = [f"line {row.line}: {row.state}" for row in rows() if not STATES.fullmatch(row.state)]
    assert not wrong, listed(wrong)


def test_every_row_names_something():
    nameless = [f"line {row.line}" for row in rows() if not names_in(row.here)]
    assert not nameless, listed(nameless)


def test_what_is_said_to_be_here_is_here():
    missing = [f"line {line}: {name}" for line, name in named(planned=False) if not exists(name)]
    assert not missing, listed(missing)


def test_what_is_said_to_be_planned_is_not_here_yet():
    here = [f"line {line}: {name}" for line, name in named(planned=True) if exists(name)]
    assert not here, listed(here)


def test_every_document_has_its_section():
    text = PAGE.read_text(encoding="utf-8")
    missing = [document for document in DOCUMENTS if f"\n## {document}\n" not in text]
    assert not missing, listed(missing)


def test_a_name_is_looked_up_for_what_it_is():
    wrong = [name for name in THERE if exists(name) is not True]
    wrong += [name for name in NOT_THERE if exists(name) is not False]
    assert not wrong, listed(wrong)


def test_the_options_of_job_that_are_no_options_of_a_job_exist():
    assert set(job.__kwdefaults__) >= ALSO_OF_JOB
