"""What a page names exists: modules, attributes, files, and functions beside their file."""

import ast
import importlib
import re
from pathlib import Path

from django.apps import apps

from tests.house.findings import listed
from tests.house.life_of_a_job import BESIDE_A_FILE, functions_named_in

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "django_jobs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DOTTED = re.compile(r"(?<![\w./-])django_jobs(?:\.\w+)+")
HAS_ITS_OWN_TEST = "docs/reference/seeds.md"
"""Names there what is planned as well: ``test_seeds`` reads it."""
FOLDERS = "|".join(sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
FILE = re.compile(
    r"(?<![\w./-])"
    rf"(?:(?:django_jobs|tests|testproject|docs)/[\w/.-]*\w|(?:{FOLDERS})/[\w/]+\.py)"
)
ELSEWHERE = {"django_jobs.sqlite3"}
"""Files that a reader's project may have."""
PERMISSIONS = {
    f"{model._meta.app_label}.{codename}"
    for model in apps.get_app_config("django_jobs").get_models()
    for codename in [
        *(f"{action}_{model._meta.model_name}" for action in model._meta.default_permissions),
        *(codename for codename, _ in model._meta.permissions),
    ]
}


def matches(pattern):
    """What a pattern finds in all pages, and where."""
    for page in PAGES:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
            for match in pattern.finditer(line):
                yield f"{page.relative_to(ROOT)}:{number}", match


def leads_somewhere(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        module = ".".join(parts[:size])
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError as error:
            # A module is there that needs a package which is not installed here.
            if not module.startswith(error.name or module):
                return True
            continue
        for part in parts[size:]:
            if not hasattr(value, part):
                return part in getattr(value, "__annotations__", {})
            value = getattr(value, part)
        return True
    return False


def spelled():
    """Texts of the package that look as dotted names do: ids of checks, keys, names of spans."""
    texts = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            value = node.value if isinstance(node, ast.Constant) else None
            text = value.decode("latin-1").strip("\0") if isinstance(value, bytes) else value
            if isinstance(text, str) and DOTTED.fullmatch(text):
                texts.add(text)
    return texts


def functions_in(path):
    """The names of all functions and classes of a file, with those of the classes around them."""

    def names(node, within):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{within}{child.name}"
                yield from names(child, f"{within}{child.name}.")

    return set(names(ast.parse(path.read_text("utf-8")), ""))


def test_there_are_names_to_look_at():
    assert all(any(matches(pattern)) for pattern in (DOTTED, FILE, BESIDE_A_FILE))


def test_every_dotted_name_leads_somewhere():
    no_paths = spelled() | PERMISSIONS | ELSEWHERE
    wrong = [
        f"{where}: {match.group()}"
        for where, match in matches(DOTTED)
        if not where.startswith(HAS_ITS_OWN_TEST)
        and not (match.group() in no_paths or leads_somewhere(match.group()))
    ]
    assert not wrong, listed(wrong)


def test_every_file_exists():
    wrong = [
        f"{where}: {match.group()}"
        for where, match in matches(FILE)
        if not any((root / match.group()).exists() for root in (ROOT, PACKAGE))
    ]
    assert not wrong, listed(wrong)


def test_functions_are_in_the_file_beside_which_they_are_named():
    wrong = []
    for where, match in matches(BESIDE_A_FILE):
        for file, name in functions_named_in(match.group()):
            path = ROOT / file
            if name not in (functions_in(path) if path.exists() else ()):
                wrong.append(f"{where}: {file} {name}")
    assert not wrong, listed(wrong)


def test_a_wrong_name_would_be_noticed():
    assert leads_somewhere("django_jobs.worker.cycle.Cycle.once")
    assert leads_somewhere("django_jobs.admin")
    wrong = [
        "django_jobs.nothing",
        "django_jobs.worker.nothing",
        "django_jobs.worker.cycle.Cycle.no",
    ]
    assert not any(map(leads_somewhere, wrong))
    assert "Cycle.once" in functions_in(PACKAGE / "worker" / "cycle.py")
    assert FILE.search("see `django_jobs/worker/pool/get.py`")
    assert FILE.search("see `worker/store.py`")


DECISIONS = ROOT / "docs" / "explanation" / "decisions"
MOST_WORDS = 25


def test_decisions_stand_under_the_same_areas_in_the_index_and_in_the_navigation():
    index = re.findall(
        r"^## (.+)$|^- \[.*\]\(([\w-]+)\.md\)$",
        (DECISIONS / "index.md").read_text("utf-8"),
        re.MULTILINE,
    )
    navigation = re.findall(
        r"^          - (.+):$|^              - explanation/decisions/([\w-]+)\.md$",
        (ROOT / "mkdocs.yml").read_text("utf-8").partition("- Decisions:\n")[2],
        re.MULTILINE,
    )
    assert index == navigation
    pages = [page for _, page in index if page]
    assert sorted(pages) == sorted({path.stem for path in DECISIONS.glob("*.md")} - {"index"})


def test_the_glossary_has_so_many_words_and_each_once():
    page = (ROOT / "docs/explanation/glossary.md").read_text("utf-8")
    words = re.findall(r"^\| ([\w ]+) \|", page, re.MULTILINE)[1:]
    assert 0 < len(words) <= MOST_WORDS
    assert len(words) == len(set(words))


def test_contributing_lists_the_folders_of_tests_that_there_are():
    rows = re.findall(
        r"^\| (`tests/.*?) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    named = {name for row in rows for name in re.findall(r"`tests/(\w+)`", row)}
    there = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))}
    assert named == there - {"__pycache__"}
