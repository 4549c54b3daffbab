"""python -m tests.mutants [PART OF A MODULE'S NAME …]: run the mutants, explain the survivors.

Each mutant is run in a fork of a process that has imported all but django_jobs, against the
tests of its module. Whoever survives has to be in survivors.toml with a reason, and whoever is
there has to survive: anything else is a failure.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import resource
import signal
import sys
import tempfile
import time
import tomllib
import warnings
from pathlib import Path

import django
import hypothesis
import hypothesis.strategies
from django import conf
from django.apps import apps

from tests.mutants.changing import mutants_of

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = Path(__file__).with_name("survivors.toml")
AT_ONCE = int(os.environ.get("MUTANTS_AT_ONCE") or os.cpu_count() or 1)
CPU_SECONDS = 20
LIMIT = 300.0  # for what waits without computing
URL = "tests/unit/handlers/url"
NAMES = f"{URL}/test_hostile.py"
LIMITS = f"{URL}/test_limits.py"
PARTS = ("", "_fields", "_limits")
ALLOWED = [
    "tests/unit/handlers/test_argv.py",
    "tests/unit/handlers/test_command.py",
    "tests/unit/handlers/shell/test_programs.py",
]
REACH = ["tests/unit/test_conf_reach.py", *ALLOWED, "tests/unit/handlers/test_event.py"]
INSIDE = "tests/conformance/test_database.py::TestDatabaseBackendInsideATransaction"
ADMISSION = ("admission", "decided", "finding_handlers")

TESTS = {
    "wire/signing.py": ["tests/unit/wire/test_signing.py"],
    "wire/opening.py": [f"tests/unit/wire/test_opening{part}.py" for part in PARTS],
    "conf/reach.py": REACH,
    "conf/allowed.py": REACH,
    "handlers/argv.py": [*ALLOWED, "tests/unit/test_conf_reach.py"],
    "handlers/command.py": ["tests/unit/handlers/test_command.py"],
    "handlers/event.py": ["tests/unit/handlers/test_event.py"],
    "handlers/shell/programs.py": [
        f"tests/unit/handlers/shell/test_{name}.py" for name in ("programs", "real_path")
    ],
    "worker/admission.py": [f"tests/unit/worker/test_{name}.py" for name in ADMISSION],
    "backends/database/held.py": [INSIDE],
    "handlers/registry.py": ["tests/unit/handlers/test_registry.py"],
    "handlers/url/host.py": [f"{URL}/test_target.py"],
    "handlers/url/target.py": [f"{URL}/test_target.py"],
    "handlers/url/addresses.py": [f"{URL}/test_addresses.py"],
    "handlers/url/request.py": [f"{URL}/test_request.py"],
    "handlers/url/rules.py": [f"{URL}/test_rules.py"],
    "handlers/url/redirects.py": [f"{URL}/test_redirects.py"],
    "handlers/url/resolving.py": [
        f"{LIMITS}::test_a_name_that_leads_nowhere_fails",
        f"{LIMITS}::test_a_resolver_that_does_not_answer_is_left",
        f"{LIMITS}::test_a_lookup_keeps_no_process_from_ending",
        f"{URL}/test_documented.py::test_the_limits_of_the_page_are_those_in_force",
        f"{NAMES}::test_one_bad_answer_of_several_refuses_the_name",
        f"{NAMES}::test_a_name_that_flips_between_public_and_loopback_is_asked_for_once",
        f"{URL}/test_calls.py::test_the_resolver_of_the_machine_knows_localhost",
        f"{URL}/test_calls.py::test_an_address_in_the_url_is_called_without_a_lookup",
    ],
}
# What stands on tables needs a site, which takes a second more for each mutant.
OF_A_SITE = ("tests/conformance", "tests/integration")
# Plugins by name: looking for them would take as long as running the tests.
PLUGINS = ["_hypothesis_pytestplugin", "pytest_django.plugin", "pytest_timeout"]
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
OPTIONS += [word for plugin in PLUGINS for word in ("-p", plugin)]
# Imported once, before the forks; django_jobs must not be among what these bring along.
HEAVY = """
    asyncio concurrent.futures cryptography.x509 django.db.models django.forms django.template
    django.test django.test.client django.test.utils django.utils.module_loading email.message
    http.client hypothesis.strategies pytest ssl sqlite3
"""


def main(parts):
    prepare()
    chosen = {
        path: tests
        for path, tests in TESTS.items()
        if not parts or any(part in path for part in parts)
    }
    began, survivors, total = time.monotonic(), {}, 0
    for path, tests in chosen.items():
        file = ROOT / "django_jobs" / path
        if told := failure_without_mutant(file, tests):
            return f"{path}: its tests fail without a mutant:\n{told}"
        mutants = list(mutants_of(file.read_text("utf-8"), str(file)))
        found = run_all(mutants, file, tests)
        survivors[path] = {mutant.name: mutant for mutant in found}
        total += len(mutants)
        print(f"{path}: {len(mutants)} mutants, {len(found)} survive", flush=True)
    print(f"{total} mutants in {time.monotonic() - began:.0f} s")
    return verdict(survivors)


def prepare():
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.mutants.settings"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Always the same examples, and none that fails because the machine is busy.
    hypothesis.settings.register_profile(
        "mutants",
        database=None,
        deadline=None,
        derandomize=True,
        max_examples=30,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for name in HEAVY.split():
        importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this comes before the tests is what it is for
        take_texts()
    for name in PLUGINS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    django.setup()
    if any(name.startswith("django_jobs") for name in sys.modules):
        raise RuntimeError("django_jobs was imported too early to be changed")


@hypothesis.given(hypothesis.strategies.text())
def take_texts(_text):
    """Has the tables of all characters made, once for all forks."""


def run_all(mutants, file, tests):
    """The mutants that no test noticed, a few of them running at any time."""
    waiting, running, survivors = list(reversed(mutants)), {}, []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            mutant = waiting.pop()
            running[start(mutant, file, tests)] = (mutant, time.monotonic() + LIMIT)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            mutant, _ = running.pop(pid)
            if os.waitstatus_to_exitcode(status) == 0:
                survivors.append(mutant)
            continue
        for slow, (_, end) in running.items():
            if time.monotonic() > end:
                os.kill(slow, signal.SIGKILL)  # without an end is noticed, too
        time.sleep(0.01)
    return survivors


def failure_without_mutant(file, tests):
    """What the tests say when they fail with the file as it is."""
    with tempfile.NamedTemporaryFile() as output:
        _, status = os.waitpid(start(None, file, tests, output.name), 0)
        told = Path(output.name).read_text("utf-8")[-4000:]
        return (told or "they did not even begin") if status else ""


def start(mutant, file, tests, output=os.devnull):
    """The pid of a process that runs the tests with a mutant in the file's place."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        nowhere = os.open(output, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        if mutant is not None:
            put_in_place(mutant, file)
        import pytest  # noqa: PLC0415 - the parent has it already

        options = OPTIONS
        if any(test.startswith(OF_A_SITE) for test in tests):
            begin_a_site()
            options = [*OPTIONS, "--no-migrations"]
        os._exit(pytest.main([*options, *tests]))
    finally:
        os._exit(70)


def begin_a_site():
    """Let Django begin anew with the test project, whose tables are in a SQLite file."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    conf.settings._wrapped = conf.empty
    os.environ["DJANGO_JOBS_TEST_SUFFIX"] = f"mutant_{os.getpid()}"
    apps.loading = apps.apps_ready = apps.models_ready = apps.ready = False
    apps.ready_event.clear()


def put_in_place(mutant, file):
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, name):
        return mutant.code if self.path == str(file) else plain(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code


def verdict(survivors):
    explained = tomllib.loads(EXPLAINED.read_text("utf-8")) if EXPLAINED.exists() else {}
    problems = []
    for path, found in survivors.items():
        known = {entry["mutant"] for entry in explained.get(path, [])}
        problems += [
            f"{path}:{mutant.line} survives: {name}"
            for name, mutant in found.items()
            if name not in known
        ]
        problems += [f"{path}: does not survive (any more): {name}" for name in known - set(found)]
    return "\n".join(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
