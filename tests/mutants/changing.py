"""All small changes of a module: one condition, number, call or list entry at a time.

Not changed: docstrings, annotations, imports, decorators, texts written for people, and what
an exception says. Everything else is; of queries see ``queries``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, field

from tests.mutants import queries

OPPOSITE = {
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.FloorDiv],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.RShift: [ast.LShift],
}
INSTEAD = {"any": "all", "all": "any", "min": "max", "max": "min"}
NEVER_INSIDE = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
FOR_PEOPLE = re.compile(r"[a-z] [a-z]")
AGAIN = re.compile(r" \(\d+\)$")  # the number of a mutant whose change is made several times
SHOWN = 120


@dataclass(frozen=True)
class Mutant:
    """One change: where, of what, and the code that results."""

    line: int
    where: str
    before: str
    after: str
    code: object = field(repr=False, compare=False)
    number: int = 1

    @property
    def name(self):
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.where}: {self.before} → {self.after}{again}"


def mutants_of(source, path, names=None):
    """Every mutant of a module that can be compiled, or those of some names.

    To compile them is what takes long: a few of many are found in no time.
    """
    wanted = None if names is None else {AGAIN.sub("", name) for name in names}
    tree = ast.parse(source)
    seen = Counter()
    for place, where in places(tree, ""):
        original = place.get()
        for replacement in replacements(original):
            before, after = shown(original), shown(replacement)
            if wanted is not None and Mutant(0, where, before, after, None).name not in wanted:
                continue
            place.put(replacement)
            try:
                code = compile(ast.fix_missing_locations(tree), path, "exec")
            except (SyntaxError, ValueError):
                continue
            finally:
                place.put(original)
            key = (where, before, after)
            seen[key] += 1
            yield Mutant(original.lineno, *key, code, seen[key])


@dataclass(frozen=True)
class Place:
    """Where in a tree a node hangs, so that another one can hang there for a while."""

    parent: ast.AST
    name: str
    index: int | None = None

    def get(self):
        found = getattr(self.parent, self.name)
        return found if self.index is None else found[self.index]

    def put(self, node):
        if self.index is None:
            setattr(self.parent, self.name, node)
        else:
            getattr(self.parent, self.name)[self.index] = node


def places(node, where):
    """(place, name of the function or class around it) of all that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or is_left_out(child):
                continue
            inside = where
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = f"{where}.{child.name}" if where else child.name
            if hasattr(child, "lineno"):
                yield Place(node, name, index), inside or "module"
            if not isinstance(child, NEVER_INSIDE):
                yield from places(child, inside)


def is_left_out(node):
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def replacements(node):
    """What may stand in a node's place."""
    kind = type(node).__name__
    for changed in CHANGES.get(kind, lambda _node: ())(node):
        yield ast.copy_location(changed, node)


def compare(node):
    for index, operator in enumerate(node.ops):
        for other in OPPOSITE.get(type(operator), ()):
            ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)


def boolean(node):
    yield ast.BoolOp(OPPOSITE[type(node.op)][0](), node.values)
    for index in range(len(node.values)):
        left = node.values[:index] + node.values[index + 1 :]
        yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)


def arithmetic(node):
    for other in OPPOSITE.get(type(node.op), ()):
        yield ast.BinOp(node.left, other(), node.right)


def unary(node):
    if isinstance(node.op, ast.Not):
        yield node.operand


def constant(node):
    match node.value:
        case bool():
            yield ast.Constant(not node.value)
        case int() | float():
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)
        case str() if queries.is_statement(node):
            yield from queries.of_text(node)
        case str() if not FOR_PEOPLE.search(node.value):
            yield ast.Constant(f"{node.value}X" if node.value else "X")
        case bytes():
            yield ast.Constant(node.value + b"X")


def condition(node):
    for value in (True, False):
        yield type(node)(ast.Constant(value), node.body, node.orelse)


def loop(node):
    yield ast.While(ast.Constant(False), node.body, node.orelse)


def returned(node):
    if node.value is not None and not is_none(node.value):
        yield ast.Return(ast.Constant(None))


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def called(node):
    if isinstance(node.func, ast.Name) and node.func.id in INSTEAD:
        yield ast.Call(ast.Name(INSTEAD[node.func.id], ast.Load()), node.args, node.keywords)
    if isinstance(node.func, ast.Attribute) and not (node.args or node.keywords):
        yield node.func.value  # text.lower() → text
    yield from queries.of_queryset(node)


def nothing(_node):
    yield ast.Pass()


def stored(node):
    """What is put into a thing that others see; a name of one's own would only be missing."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Subscript) or is_of_another(target):
            yield ast.Pass()


def is_of_another(target):
    return isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"


def section(node):
    """What begins or ends somewhere, without that."""
    if node.lower is not None:
        yield ast.Slice(None, node.upper, node.step)
    if node.upper is not None:
        yield ast.Slice(node.lower, None, node.step)


def collection(node):
    if len(node.elts) > 1 and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for index in range(len(node.elts)):
            left = node.elts[:index] + node.elts[index + 1 :]
            more = () if isinstance(node, ast.Set) else (ast.Load(),)
            yield without(node.elts[index], type(node)(left, *more))


def mapping(node):
    for index in range(len(node.keys)):
        keys, values = node.keys[:], node.values[:]
        del keys[index], values[index]
        part = node.keys[index] or node.values[index]  # **others has no key
        yield without(part, ast.Dict(keys, values))


def without(part, node):
    """A long list is told by what it lacks."""
    node.told = f"the same without {shown(part)}"
    return node


CHANGES = {
    "Compare": compare,
    "BoolOp": boolean,
    "BinOp": arithmetic,
    "UnaryOp": unary,
    "Constant": constant,
    "If": condition,
    "IfExp": condition,
    "While": loop,
    "Return": returned,
    "Call": called,
    "JoinedStr": queries.of_text,
    "Slice": section,
    "Assign": stored,
    "AugAssign": stored,
    "Raise": nothing,
    "Expr": nothing,
    "Continue": nothing,
    "Tuple": collection,
    "List": collection,
    "Set": collection,
    "Dict": mapping,
}


def shown(node):
    """A node on one line: of a statement with a body, its head."""
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {shown(node.test)}"
    text = getattr(node, "told", "") or " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
