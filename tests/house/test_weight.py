"""What the app costs a process that only enqueues: counted, for milliseconds depend on the day.

``make house`` prints the milliseconds.
"""

from pathlib import Path

import pytest

from tests.house.measure_running import JOBS_MODULE, WEB, WEIGH, Site

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 90
MOST_DATACLASSES = 25
MOST_MEGABYTES = 6.0

CRON = """
from django_jobs import cron


@cron("0 3 * * *", args=(1, 2))
@job
def nightly(first: int, second: int) -> int:
    return first + second
"""
DATACLASSES = """
import json, sys
built = {
    f"{value.__module__}.{value.__qualname__}"
    for name, module in list(sys.modules.items())
    if name.partition(".")[0] == "django_jobs"
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == name
    and "__dataclass_params__" in vars(value)
}
print("\\n" + json.dumps(sorted(built)))
"""

# Of the package and of others: what runs jobs, decides schedules, operates or checks.
FORBIDDEN = (
    *("psycopg", "MySQLdb", "redis", "croniter", "dateutil", "django.tasks", "django_tasks"),
    *(
        f"django_jobs.{name}"
        for name in (
            *("admin", "jobs", "management", "operations", "tasks", "testing", "views", "worker"),
            *("backends.memory", "backends.redis", "backends.sync"),
            *("checks.databases", "checks.handlers", "checks.messages", "checks.reach"),
            *("checks.schedules", "checks.settings"),
            *("cron.builder", "cron.configured", "cron.expression", "cron.problems"),
            *("cron.registry", "cron.stored", "cron.zones"),
            *("execution.attempt", "execution.timeout", "outcome"),
            *("handlers.command", "handlers.event", "handlers.shell", "handlers.url"),
            *("outbox.relay", "redaction", "telemetry.logs", "wire.opening"),
        )
    ),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"), ROOT, "django_jobs")
    (site.folder / "shop" / "jobs.py").write_text(JOBS_MODULE + CRON)
    site.run(environment(site), "manage.py", "migrate", "--verbosity", "0")
    return site


def environment(site, **options):
    """With compiled files, which every deployed site has: to compile takes memory, too."""
    variables = site.environment(**options)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


@pytest.fixture(scope="module")
def web(site):
    """What a web process has in memory that has enqueued one job."""
    site.run(environment(site), "-c", WEB)  # compiles
    return site.last_line(environment(site), "-c", f"{WEB}\n{WEIGH}")


def belongs(module, name):
    return module == name or module.startswith(f"{name}.")


def test_it_imports_few_modules_of_the_package(web):
    own = [module for module in web["modules"] if belongs(module, "django_jobs")]
    assert len(own) <= MOST_MODULES, own


def test_it_imports_nothing_that_others_need(web):
    assert [
        module for module in web["modules"] if any(belongs(module, name) for name in FORBIDDEN)
    ] == []


def test_what_it_must_not_import_exists():
    """A name that was changed would forbid nothing."""
    own = [name.replace(".", "/") for name in FORBIDDEN if belongs(name, "django_jobs")]
    assert [
        name for name in own if not (ROOT / name).is_dir() and not (ROOT / f"{name}.py").is_file()
    ] == []


def test_it_builds_few_dataclasses(site):
    """Each takes half a millisecond when it is imported; see ``telemetry.events.Event``."""
    built = site.last_line(environment(site), "-c", f"{WEB}\n{DATACLASSES}")
    assert len(built) <= MOST_DATACLASSES, built


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs the /proc of Linux")
def test_it_takes_little_memory(site, web):
    bare = environment(site, package=False)
    site.run(bare, "-c", WEB)
    without = site.last_line(bare, "-c", f"{WEB}\n{WEIGH}")
    assert (web["memory"] - without["memory"]) / 1024 <= MOST_MEGABYTES


def test_a_check_of_a_site_without_schedules_needs_no_engine_of_them(tmp_path):
    site = Site(tmp_path, ROOT, "django_jobs")
    check = "from django.core.management import call_command\ncall_command('check')"
    code = f"import django\ndjango.setup()\n{check}\n{WEIGH}"
    checked = site.last_line(environment(site), "-c", code)["modules"]
    assert "django_jobs.checks.settings" in checked
    needless = ("croniter", "psycopg", "django_jobs.cron.registry", "django_jobs.worker")
    assert [module for module in checked if any(belongs(module, name) for name in needless)] == []
