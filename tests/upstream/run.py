"""Run Django's own tests of Tasks against this package.

    python -m tests.upstream.run [the unpacked source of Django]

Without a folder the source of the installed Django is fetched from the package index. The
wheel of Django has no tests, hence this script rather than a part of the suite.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django

LOCKS = Path(__file__).resolve().parents[2] / ".ci/locks"


def wanted():
    """What pip is to fetch: the installed Django, by hash where it is the one that CI pins."""
    version = django.get_version()
    lock = LOCKS / f"{version.rpartition('.')[0]}.txt"
    pinned = re.search(rf"(?m)^django=={re.escape(version)} (.*\\\n)+.*", lock.read_text())
    return pinned[0] if pinned else f"django=={version}"


def fetched(folder):
    """The source of the Django that is installed."""
    requirement = folder / "django.txt"
    requirement.write_text(wanted())
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary", "django"]
    if os.environ.get("LOCKED"):
        command += ["--require-hashes", "--no-build-isolation"]  # what builds it is locked too
    subprocess.run([*command, "-d", str(folder), "-r", str(requirement)], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def run(source):
    tests = source / "tests"
    if not (tests / "tasks").is_dir():
        raise SystemExit(f"{source} has no tests/tasks: Django has them from 6.0 on")
    sys.path.append(str(tests))
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.upstream.settings"
    # Coroutines among the tests look at results without awaiting them.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    django.setup()
    from tests.upstream.runner import Runner  # noqa: PLC0415 - Django is set up now

    return Runner(interactive=False).run_tests(["tests.upstream.suite"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        given = sys.argv[1:]
        raise SystemExit(run(Path(given[0]) if given else fetched(Path(folder))))
