"""python -m tests.guarded: every branch of the guarded modules is run, or this fails.

Claims and settles differ from one database to the other, so the tests run on SQLite and on each
server that answers, and the figures are put together. Where a server is missing this is said, and
its branches are missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import services

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "backends/database"
GUARDED = (
    "wire/*", "handlers/url/*",
    "conf/allow_lists.py", "conf/model.py", "handlers/command.py",
    "handlers/event.py", "handlers/shell/handler.py", "worker/admission.py",
    *(f"{DATABASE}/{name}.py" for name in ("claim", "settle", "ack", "keys", "unreadable")),
)  # fmt: skip
CONFORMANCE = "tests/conformance/test_database.py"
OF_DATABASES = [
    "tests/integration/test_claim.py", "tests/integration/guards/test_forgotten.py",
    "tests/integration/test_attempts_kept.py", "tests/integration/test_unanswered.py",
    "tests/integration/test_unreadable.py", "tests/integration/test_key_rows.py",
    "tests/integration/test_enqueue_again.py",
]  # fmt: skip
# Of the suites those that need no database to be emptied after each test.
OF_SERVERS = [f"{CONFORMANCE}::TestDatabaseBackendInsideATransaction", *OF_DATABASES]
TESTS = {
    "sqlite": [
        # Its programs run as other users, who may not write figures of coverage.
        "--ignore=tests/unit/handlers/shell/test_stray_processes.py",
        "tests/unit/wire", "tests/unit/handlers", "tests/unit/worker/test_admission.py",
        "tests/unit/worker/test_decided.py", "tests/unit/worker/test_finding_handlers.py",
        "tests/unit/worker/test_policies.py", "tests/unit/test_claim_cursors.py",
        "tests/integration/worker/test_process_once.py::test_a_policy_that_cannot_be_imported_fails_no_worker_and_loses_no_job",
        "tests/unit/test_conf.py", "tests/integration/worker/test_waiting_messages.py",
        "tests/unit/test_conf_reach.py", "tests/unit/test_conf_urls.py",
        "tests/unit/test_checks_reach.py", "tests/integration/test_handlers.py",
        f"{CONFORMANCE}::TestDatabaseBackend",
        f"{CONFORMANCE}::TestDatabaseBackendWithoutSkipLocked", *OF_DATABASES,
    ],
    "postgres": [
        *OF_SERVERS, "tests/integration/test_claim_cursors.py",
        "tests/integration/test_locked_rows.py",
    ],
    "mariadb": [*OF_SERVERS, "tests/integration/test_old_snapshots.py"],
}  # fmt: skip


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / ".coverage"
        failed = [name for name, tests in TESTS.items() if not _run(name, tests, data)]
        coverage(data, "combine", "-q")
        told = [f"--include={','.join(f'django_jobs/{name}' for name in GUARDED)}"]
        whole = coverage(data, "report", "--precision=2", "--fail-under=100", *told)
    print(f"{time.monotonic() - began:.0f} s")
    return int(bool(failed) or not whole)


def _run(database: str, tests: list[str], data: Path) -> bool:
    """Run tests under coverage; whether they passed, or could not be run for want of a server."""
    if database != "sqlite" and (why := services.why_not(database)):
        print(f"NOT RUN on {database}, so its branches are missed: {why}", flush=True)
        return os.environ.get("DJANGO_JOBS_TEST_REQUIRE") != "all"
    options = ["-q", "-p", "no:cacheprovider", "-m", ""]
    print(f"{database}:", flush=True)
    return coverage(data, "run", "-m", "pytest", *options, *tests, DJANGO_JOBS_TEST_DB=database)


def coverage(data: Path, *arguments: str, **environment: str) -> bool:
    command = [sys.executable, "-m", "coverage", *arguments]
    known = {**os.environ, **environment, "COVERAGE_FILE": str(data)}
    return subprocess.run(command, cwd=ROOT, env=known, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
