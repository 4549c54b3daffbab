"""How the code stands, as figures: sizes, names used twice, the path of one job.

    python -m tests.house.measure [--list] [--json FILE] [--before FILE] [--quick]

It fails nothing. It knows the public names of the package alone, so that figures from before and
after a change of its modules can be laid side by side.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.house import measure_running

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "django_jobs"
LEFT_OUT = "migrations"
BANDS = (0, 50, 100, 200, 300, 500, 1000)
MOST_MODULES = 16
SHORT_LINES = 4
IDENTIFIERS = ("told", "said", "heard", "found", "one", "given", "known")
WORDS = ("nobody", "somebody", "whoever")
NAMED_BY_DJANGO = {"Meta", "Media", "Command"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)

ANCHORS = {
    "solid_queue": "rails/solid_queue 29e818d, lib and app",
    "procrastinate": "procrastinate f099a753, Python only, with its demos",
    "oban": "oban 2939e313",
    "river": "river fdf6cdf",
}
# By label; in the order of ANCHORS; None where it was not measured.
ANCHOR_FIGURES: dict[str, tuple[Any, ...]] = {
    "files": (67, 72, 52, 99),
    "lines": (3933, 8977, 13395, 26399),
    "median lines of a file": (48, 38.5, 167.5, 117),
    "files of 0-50 lines": (None, 43, None, None),
    "files of 51-100 lines": (None, 5, None, None),
    "files of 101-200 lines": (None, 8, None, None),
    "files of 201-300 lines": (None, 7, None, None),
    "files of 301-500 lines": (0, 5, None, None),
    "files of 501-1000 lines": (0, 3, None, None),
    "files of more than 1000 lines": (0, 1, 1, 6),
    "lines of the biggest file": (257, 1042, 1787, 3025),
    "lines of tests to a line of code": (1.57, 1.28, 0.49, 1.22),
    "code without imports": (3100, 5281, 7300, 17300),
    "imports": (None, 494, None, None),
    "code without imports, %": (None, 58.8, None, None),
    "imports, %": (None, 5.5, None, None),
    "blank, %": (None, 14.1, None, None),
    "docstrings, %": (None, 18.5, None, None),
    "comments, %": (None, 3.0, None, None),
    "functions": (None, 485, None, None),
    "lines of a function, 90 % have at most": (None, 32, None, None),
    "lines of the longest function": (None, 126, None, 104),
    "modules named by a gerund": (1, 1, 1, 0),
    "enqueue: files": (8, None, None, None),
    "enqueue: lines in them": (519, None, None, None),
    "enqueue, run, fail: files": (18, 11, 10, None),
    "enqueue, run, fail: lines in them": (1281, 4200, 5500, None),
}


# ------------------------------------------------------------------------------------ reading


@dataclass
class Module:
    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def base_name(self) -> str:
        return self.path.stem

    @property
    def folder(self) -> str:
        return self.path.parent.relative_to(ROOT).as_posix()


def modules_of(package: str) -> dict[str, Module]:
    modules = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if LEFT_OUT in parts:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, text, ast.parse(text, filename=str(path)))
    return modules


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def length_of(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


# ------------------------------------------------------------------------------------- report


@dataclass
class Report:
    """Figures by section and label, and what stands behind some of them."""

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    lists: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def add(self, section: str, label: str, value: Any, names: Iterable[str] = ()) -> None:
        self.figures.setdefault(section, {})[label] = value
        if names := list(names):
            self.lists.setdefault(section, {})[label] = names

    def as_json(self) -> str:
        document = {"figures": self.figures, "lists": self.lists, "anchors": ANCHORS}
        return json.dumps(document, indent=1)


def shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}".replace(",", " ") if isinstance(value, (int, float)) else str(value)


def printed(report: Report, before: dict[str, dict[str, Any]] | None, *, with_lists: bool) -> None:
    for section, rows in report.figures.items():
        anchors = ANCHORS if any(label in ANCHOR_FIGURES for label in rows) else ()
        columns = ["now", *(["before"] if before is not None else []), *anchors]
        print(f"\n{section:<54}" + "".join(f"{column:>14}" for column in columns))
        for label, value in rows.items():
            earlier = [] if before is None else [before.get(section, {}).get(label)]
            cells = [shown(cell) for cell in (value, *earlier, *ANCHOR_FIGURES.get(label, ()))]
            print(f"  {label:<52}" + "".join(f"{cell:>14}" for cell in cells).rstrip())
            if with_lists:
                for name in report.lists.get(section, {}).get(label, ()):
                    print(f"      {name}")
    print("\nBeside them: " + "; ".join(ANCHORS.values()))


# -------------------------------------------------------------------------------------- sizes


def band_of(low: int, high: int | None) -> str:
    if high is None:
        return f"files of more than {low} lines"
    return f"files of {low + 1 if low else 0}-{high} lines"


def measure_size(report: Report, modules: dict[str, Module]) -> None:
    section = "Size"
    sizes = {name: module.lines for name, module in modules.items()}
    biggest = max(modules.values(), key=lambda module: module.lines)
    report.add(section, "files", len(sizes))
    report.add(section, "lines", sum(sizes.values()))
    report.add(section, "median lines of a file", statistics.median(sizes.values()))
    for low, high in pairwise((*BANDS, None)):
        within = [n for n, size in sizes.items() if size > low and (high is None or size <= high)]
        if low == 0:
            within += [name for name, size in sizes.items() if size == 0]
        report.add(section, band_of(low, high), len(within))
    report.add(section, "lines of the biggest file", biggest.lines, [str(biggest.name)])
    tests = sum(len(path.read_text("utf-8").splitlines()) for path in tests_of())
    report.add(section, "lines of tests to a line of code", round(tests / sum(sizes.values()), 2))
    for suffix, lines in other_lines().items():
        report.add(section, f"lines of {suffix} beside", lines)


def tests_of() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def other_lines() -> dict[str, int]:
    lines: Counter[str] = Counter()
    for path in sorted((ROOT / PACKAGE).rglob("*")):
        if path.suffix in {".lua", ".html", ".css", ".js", ".txt", ".svg"}:
            lines[path.suffix] += len(path.read_text("utf-8").splitlines())
    return dict(sorted(lines.items()))


# -------------------------------------------------------------------------------------- lines


def is_text(node: ast.AST) -> bool:
    """Whether it is a docstring, of an attribute too."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_for_types(node: ast.AST) -> bool:
    """Whether it is ``if TYPE_CHECKING:``, which is there for the imports in it."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def comments_of(text: str) -> Iterator[tokenize.TokenInfo]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return (token for token in tokens if token.type == tokenize.COMMENT)


def spans(nodes: Iterable[ast.AST]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)}


def kinds_of_lines(module: Module) -> Counter[str]:
    nodes = list(ast.walk(module.tree))
    docstrings = spans(node for node in nodes if is_text(node))
    imports = spans(node for node in nodes if isinstance(node, IMPORTS))
    imports |= {node.lineno for node in nodes if is_for_types(node)}
    alone = {t.start[0] for t in comments_of(module.text) if t.line.lstrip().startswith("#")}
    kinds: Counter[str] = Counter()
    for number, line in enumerate(module.text.splitlines(), 1):
        if number in docstrings:
            kinds["docstrings"] += 1
        elif number in imports:
            kinds["imports"] += 1
        elif not line.strip():
            kinds["blank"] += 1
        elif number in alone:
            kinds["comments"] += 1
        else:
            kinds["code without imports"] += 1
    trailing = sum(1 for t in comments_of(module.text) if t.start[0] not in alone)
    kinds["comments that end a line"] += trailing
    return kinds


def measure_lines(report: Report, modules: dict[str, Module]) -> None:
    section = "What the lines are"
    kinds = sum((kinds_of_lines(module) for module in modules.values()), Counter())
    lines = sum(module.lines for module in modules.values())
    ordered = ("code without imports", "imports", "blank", "docstrings", "comments")
    for kind in (*ordered, "comments that end a line"):
        report.add(section, kind, kinds[kind])
    for kind in ordered:
        report.add(section, f"{kind}, %", percent(kinds[kind], lines))


# ---------------------------------------------------------------------------------- functions


@dataclass(frozen=True)
class Definition:
    module: str
    within: str
    """Its class; empty for a function of the module or of another function."""
    name: str
    lines: int


@dataclass(frozen=True)
class Use:
    module: str
    classes: tuple[str, ...]
    name: str
    is_attribute: bool


class Reader(ast.NodeVisitor):
    """Which private functions a module defines, and which private names it uses."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.definitions: list[Definition] = []
        self.uses: list[Use] = []
        self._classes: list[str] = []
        self._is_method = False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._classes.append(node.name)
        before, self._is_method = self._is_method, True
        self.generic_visit(node)
        self._is_method = before
        self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if is_private(node.name):
            within = self._classes[-1] if self._is_method else ""
            self.definitions.append(Definition(self.module, within, node.name, length_of(node)))
        before, self._is_method = self._is_method, False
        self.generic_visit(node)
        self._is_method = before

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._use(node.id, is_attribute=False)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._use(node.attr, is_attribute=True)
        self.generic_visit(node)

    def _use(self, name: str, *, is_attribute: bool) -> None:
        if is_private(name):
            self.uses.append(Use(self.module, tuple(self._classes), name, is_attribute))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


class PrivateFunctions:
    """Private functions of the package, and in how many places each is used.

    By name, as a reader would search: a name that several classes of a module define is looked
    for in its own class, one that several modules define in its own module.
    """

    def __init__(self, modules: dict[str, Module]) -> None:
        self.definitions: list[Definition] = []
        self._uses: dict[str, list[Use]] = defaultdict(list)
        self._modules: dict[str, set[str]] = defaultdict(set)
        self._count: Counter[tuple[str, str]] = Counter()
        for name, module in modules.items():
            reader = Reader(name)
            reader.visit(module.tree)
            self.definitions += reader.definitions
            for use in reader.uses:
                self._uses[use.name].append(use)
        for definition in self.definitions:
            self._modules[definition.name].add(definition.module)
            self._count[definition.module, definition.name] += 1

    def uses(self, definition: Definition) -> int:
        return sum(self._is_of(use, definition) for use in self._uses[definition.name])

    def _is_of(self, use: Use, definition: Definition) -> bool:
        if use.module != definition.module:
            return len(self._modules[definition.name]) == 1
        if self._count[definition.module, definition.name] == 1:
            return True
        if definition.within:
            return definition.within in use.classes
        return not use.is_attribute


def measure_functions(report: Report, modules: dict[str, Module]) -> None:
    section = "Functions"
    functions = [f for module in modules.values() for f in functions_in(module.tree)]
    lengths = sorted(map(length_of, functions))
    explained = sum(1 for function in functions if ast.get_docstring(function))
    report.add(section, "functions", len(functions))
    report.add(section, "median lines of a function", statistics.median(lengths))
    at_most = lengths[int(0.9 * len(lengths))]
    report.add(section, "lines of a function, 90 % have at most", at_most)
    report.add(section, "lines of the longest function", lengths[-1])
    report.add(section, "functions with a docstring, %", percent(explained, len(functions)))
    private = PrivateFunctions(modules)
    single = [function for function in private.definitions if private.uses(function) == 1]
    short = [function for function in single if function.lines <= SHORT_LINES]
    report.add(section, "private functions", len(private.definitions))
    report.add(section, "private functions used in exactly 1 place", len(single))
    label = f"and of those, of at most {SHORT_LINES} lines"
    report.add(
        section, label, len(short), (f"{function.module}.{function.name}" for function in short)
    )


# -------------------------------------------------------------------------- modules and names


def imported_by(node: ast.AST, module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """The modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        source = node.module or ""
        if node.level:
            parts = module.name.split(".")
            above = node.level - module.is_package
            base = parts[: len(parts) - above] if above else parts
            source = ".".join([*base, *filter(None, [source])])
        dotted = [f"{source}.{alias.name}" for alias in node.names]
        names = [name if name in modules else source for name in dotted]
    else:
        return
    yield from (name for name in names if name in modules and name != module.name)


def importers_of(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Module → the modules that name it in an import, wherever that stands."""
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for module in modules.values():
        for node in ast.walk(module.tree):
            for name in imported_by(node, module, modules):
                importers[name].add(module.name)
    return importers


def imports_at_start(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Module → the modules that it needs as soon as it is imported."""
    return {
        module.name: {
            name
            for statement in module.tree.body
            for name in imported_by(statement, module, modules)
        }
        for module in modules.values()
    }


def packages_of(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between what stands directly in the package: folders, and modules at its root."""
    grouped: dict[str, set[str]] = defaultdict(set)
    for name, others in edges.items():
        grouped[place_of(name)] |= {place_of(other) for other in others} - {place_of(name)}
    return grouped


def place_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    ahead = list(edges.get(start, ()))
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += edges.get(name, ())
    return seen


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each reaches all others."""
    reach = {name: reachable(edges, name) for name in edges}
    groups = {
        tuple(sorted(other for other in names if name in reach.get(other, ())))
        for name, names in reach.items()
        if name in names
    }
    return [list(group) for group in sorted(groups)]


def measure_modules(report: Report, modules: dict[str, Module]) -> None:
    section = "Modules"
    plain = {name: module for name, module in modules.items() if not module.is_package}
    importers = importers_of(modules)
    single = [name for name in plain if len(importers[name]) == 1]
    listed = [f"{name} <- {next(iter(importers[name]))}" for name in single]
    report.add(section, "modules with exactly 1 importer", len(single), listed)
    report.add(section, "lines in them", sum(modules[name].lines for name in single))
    gerunds = [name for name in plain if modules[name].base_name.endswith("ing")]
    report.add(section, "modules named by a gerund", len(gerunds), gerunds)
    folders = Counter(module.folder for module in plain.values())
    crowded = [f"{name}: {count}" for name, count in folders.items() if count > MOST_MODULES]
    report.add(section, "packages", sum(module.is_package for module in modules.values()))
    report.add(section, f"packages with more than {MOST_MODULES} modules", len(crowded), crowded)
    at_root = [name for name in modules if name.count(".") == 1]
    report.add(section, "modules and packages at the root", len(at_root), at_root)
    edges = imports_at_start(modules)
    circular = {"modules": cycles(edges), "packages": cycles(packages_of(edges))}
    for kind, groups in circular.items():
        listed = [" <-> ".join(group) for group in groups]
        report.add(section, f"import cycles of {kind}", len(groups), listed)


def several(places: dict[str, list[str]]) -> list[str]:
    many = {name: where for name, where in places.items() if len(where) > 1}
    ordered = sorted(many.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{name} x{len(where)}: {', '.join(where)}" for name, where in ordered]


def measure_names(report: Report, modules: dict[str, Module]) -> None:
    section = "Names"
    base_names, classes = defaultdict(list), defaultdict(list)
    identifiers: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for module in modules.values():
        if not module.is_package:
            base_names[module.base_name].append(module.folder)
        words.update(re.findall(r"\w+", module.text.lower()))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name not in NAMED_BY_DJANGO:
                classes[node.name].append(module.name)
            identifiers.update(identifier_of(node))
    shared = several(base_names)
    report.add(section, "module names used in 2 packages or more", len(shared), shared)
    shared = several(classes)
    report.add(section, "class names used twice or more", len(shared), shared)
    for name in IDENTIFIERS:
        report.add(section, f"identifier {name}", identifiers[name])
    for word in WORDS:
        report.add(section, f"word {word} in the text", words[word])


def identifier_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            return [name]
    return []


# ---------------------------------------------------------------------------------------- run


def measured(*, quick: bool) -> Report:
    report = Report()
    modules = modules_of(PACKAGE)
    for measure in (
        measure_size,
        measure_lines,
        measure_functions,
        measure_modules,
        measure_names,
    ):
        measure(report, modules)
    if not quick:
        measure_running.measure(report.add, ROOT, PACKAGE)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house.measure", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action="store_true", help="name what was counted")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too; - prints them")
    parser.add_argument("--before", metavar="FILE", help="lay figures of an earlier --json beside")
    parser.add_argument("--quick", action="store_true", help="read the code only; run nothing")
    options = parser.parse_args()
    before = None
    if options.before:
        before = json.loads(Path(options.before).read_text("utf-8"))["figures"]
    report = measured(quick=options.quick)
    if options.json == "-":
        print(report.as_json())
        return
    printed(report, before, with_lists=options.list)
    if options.json:
        Path(options.json).write_text(report.as_json() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
