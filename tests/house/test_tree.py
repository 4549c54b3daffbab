"""The page with the tree shows the tree of the package."""

from tests.house.life_of_a_job import between
from tests.house.tree import PACKAGE, ROOT, TREE, UNNAMED, drawing, tree


def test_the_page_shows_every_module_with_its_purpose():
    assert between(TREE, "tree").strip() == tree().strip(), "run 'make house-pages'"


def test_the_page_shows_the_layers_of_the_import_contract():
    assert between(TREE, "layers").strip() == drawing().strip(), "run 'make house-pages'"


def test_every_module_in_the_tree_says_what_it_is_for():
    lines = [line for line in tree().splitlines() if line.strip().endswith((".py", "/"))]
    assert lines == [f"{PACKAGE}/"], "these have no docstring"


def test_the_tree_has_every_module_but_migrations():
    modules = (ROOT / PACKAGE).rglob("*.py")
    expected = [
        path for path in modules if not {path.name, *path.parts} & {"__init__.py", *UNNAMED}
    ]
    names = [line.split()[0] for line in tree().splitlines() if line.strip()]
    assert len([name for name in names if name.endswith(".py")]) == len(expected) > 100
