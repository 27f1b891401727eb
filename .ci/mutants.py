"""Which changes of a module are worth a run of its tests.

A change that nobody can see would count against the tests, and one that every call notices would
count for them; both are left out, and counted.
"""

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Change", "Sorted", "changes_of", "sort_changes", "why_left_out"]

# Cosmic Ray replaces each operator by each other one. A shift of floats raises at once, and so does
# a bit of a float; `is` in place of `==` is a warning of the compiler.
KINDS = (
    {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"},
    {"BitOr", "BitAnd", "BitXor"},
    {"RShift", "LShift"},
    {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"},
    {"Is", "IsNot"},
    {"UAdd", "USub"},
)

# Decorators that change how fast an answer comes and not the answer.
SILENT_DECORATORS = {"cache", "lru_cache", "jit"}


class Change(NamedTuple):
    """One mutated source.

    Attributes:
        operator: Cosmic Ray's name of the kind of change.
        occurrence: Which of the places where the operator applies, from 0.
        line: Where, from 1.
        code: The whole module after the change.
    """

    operator: str
    occurrence: int
    line: int
    code: str


class Sorted(NamedTuple):
    """The changes of a module.

    Attributes:
        mutants: Those that tests must notice.
        left_out: How many others there are, by reason.
    """

    mutants: list[Change]
    left_out: Counter[str]


def changes_of(source: str) -> Iterator[Change]:
    """All changes that Cosmic Ray knows; those of another kind come without code.

    Raises:
        ImportError: Cosmic Ray is not installed.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():  # needs names of variables
            continue
        places = [place for node in nodes for place in operator().mutation_positions(node)]
        for occurrence, ((line, _), _) in enumerate(places):
            code = mutate_code(source, operator(), occurrence) if same_kind(name) else ""
            if code is not None:
                yield Change(name.removeprefix("core/"), occurrence, line, code)


def same_kind(operator: str) -> bool:
    """Whether an operator is replaced by one that takes the same arguments."""
    name = operator.rpartition("/")[2]
    if not name.startswith("Replace") or "Operator_" not in name:
        return True
    before, after = name.split("_")[1:]
    return before == "Delete" or any({before, after} <= kind for kind in KINDS)


def sort_changes(source: str, changes: Iterable[Change]) -> Sorted:
    """Part the mutants from the changes that are left out."""
    mutants, left_out, seen = [], Counter(), set()
    for change in changes:
        reason = why_left_out(source, change)
        if reason is None:
            shape = ast.dump(_NoPlus().visit(ast.parse(change.code)))
            reason = "the same as another mutant" if shape in seen else None
            seen.add(shape)
        if reason is None:
            mutants.append(change)
        else:
            left_out[reason] += 1
    return Sorted(mutants, left_out)


def why_left_out(source: str, change: Change) -> str | None:
    """Why a change says nothing about the tests; ``None`` if it does."""
    if not same_kind(change.operator):
        return "an operator of another kind, which raises at once"
    try:
        after = ast.parse(change.code)
    except SyntaxError:
        return "not Python"
    for (reason, _), before, shape in zip(STEPS, _shapes_of(source), _shapes(after), strict=True):
        if before == shape:
            return reason
    return None


@functools.lru_cache(maxsize=1)
def _shapes_of(source: str) -> tuple[str, ...]:
    return tuple(_shapes(ast.parse(source)))


def _shapes(tree: ast.AST) -> Iterator[str]:
    """The tree, with more taken away at each step."""
    for _, plain in STEPS:
        tree = plain(tree)
        yield ast.dump(tree)


class _NoPlus(ast.NodeTransformer):
    """``+x`` is ``x``."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.UAdd) else node


class _NoAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if "TypeAlias" in ast.dump(node.annotation):
            node.value = None
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


class _NoMarkers(ast.NodeTransformer):
    """Cosmic Ray takes the ``*`` between parameters for a product, and ``/`` is Python there."""

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *(each for each in node.kw_defaults if each is not None)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)


class _NoStrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)


class _NoExports(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return None if names == ["__all__"] else self.generic_visit(node)


class _NoMessages(ast.NodeTransformer):
    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = []
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "warn":
            node.args = node.args[1:]
            node.keywords = [word for word in node.keywords if word.arg != "stacklevel"]
        return self.generic_visit(node)


class _NoSilentDecorators(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [each for each in node.decorator_list if not _is_silent(each)]
        return self.generic_visit(node)


def _is_silent(decorator: ast.expr) -> bool:
    names = {node.attr for node in ast.walk(decorator) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(decorator) if isinstance(node, ast.Name)}
    return not names.isdisjoint(SILENT_DECORATORS)


STEPS = (
    ("a comment or the layout", lambda tree: tree),
    ("an annotation", _NoAnnotations().visit),
    ("a marker in a signature", _NoMarkers().visit),
    ("a docstring", _NoStrings().visit),
    ("__all__", _NoExports().visit),
    ("the text of an error or a warning", _NoMessages().visit),
    ("a decorator that only caches or compiles", _NoSilentDecorators().visit),
)
