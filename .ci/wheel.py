"""Look into a built wheel for what a site needs, and for what is none of its business.

    wheel.py FILE.whl

Then a throw-away site imports the package from the wheel and migrates an in-memory database.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NEEDED = [r"django_jobs/py\.typed", r"django_jobs/migrations/0001_\w+\.py"]
FOREIGN = r"(tests|testproject|docs)/"
SITE = """
import django
from django.conf import settings
from django.core.management import call_command
settings.configure(
    SECRET_KEY="for-this-check-only",
    INSTALLED_APPS=["django_jobs"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
import django_jobs
assert django_jobs.__file__.startswith(FROM), django_jobs.__file__
call_command("check", fail_level="ERROR")
call_command("migrate", verbosity=0)
"""


def missing(names: list[str]) -> list[str]:
    """What in the source tree does not come along, and what the wheel cannot do without."""
    source = (path for path in Path("django_jobs").rglob("*") if path.is_file())
    left_out = [str(path) for path in source if path.suffix != ".pyc" and str(path) not in names]
    absent = [need for need in NEEDED if not any(re.fullmatch(need, name) for name in names)]
    return left_out + absent


def main(wheel: str) -> int:
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        foreign = [name for name in names if re.match(FOREIGN, name)]
        for name in missing(names):
            print(f"not in the wheel: {name}")
        for name in foreign:
            print(f"does not belong into the wheel: {name}")
        archive.extractall(folder)
        program = f"import sys; FROM = {folder!r}; sys.path.insert(0, FROM)\n{SITE}"
        site = subprocess.run([sys.executable, "-c", program], cwd=folder, check=False)  # noqa: S603 - our own program
    return 1 if foreign or missing(names) or site.returncode else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
