"""Which names a module binds, and where those come from that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.errors import CatalogError

__all__ = [
    "GLOBAL",
    "Comprehension",
    "Function",
    "Imported",
    "Module",
    "argument_names",
    "bind",
    "bound_names",
    "enters_claim",
    "is_for_types",
    "is_text",
    "names_of_function",
]

CLAIM_DECORATORS = ("claim", "measures", "uncheckable")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Imported:
    """Where an imported name comes from: a module, or a name in it."""

    module: str
    name: str = ""


GLOBAL = Imported("")
"""Stands in a scope for a name that a `global` statement hands to the module."""


@dataclass
class Module:
    """A module of the package, parsed."""

    name: str
    path: Path
    has_walrus: bool
    bindings: dict[str, list[Imported | ast.stmt]] = field(
        default_factory=dict[str, list[Imported | ast.stmt]]
    )
    effects: list[ast.stmt] = field(default_factory=list[ast.stmt])
    entering: list[ast.stmt] = field(default_factory=list[ast.stmt])

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def bind(module: Module, statement: ast.stmt) -> None:
    """Note what a statement at the top of a module binds, does or enters."""
    if is_text(statement) or (isinstance(statement, ast.Expr) and enters_claim(statement.value)):
        return
    if isinstance(statement, ast.If) and is_for_types(statement):
        for name, where in bound_names(module, statement.body).items():
            if where is not None:
                module.bindings.setdefault(name, [where])
        for other in statement.orelse:
            bind(module, other)
        return
    for part in _one_by_one(statement):
        names = bound_names(module, [part])
        for name, where in names.items():
            if name != "__all__":
                module.bindings.setdefault(name, []).append(where or part)
        defines = isinstance(part, Function | ast.ClassDef)
        if not defines and _registers(part):
            module.entering.append(part)
        elif not names and not isinstance(part, ast.Pass | ast.AnnAssign):
            module.effects.append(part)


def _registers(node: ast.stmt) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "register" for one in ast.walk(node))


def _one_by_one(statement: ast.stmt) -> list[ast.stmt]:
    """`A, B = 1, 2` as two assignments: who uses A does not use B."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return [statement]
    target, value = statement.targets[0], statement.value
    if (
        not isinstance(target, ast.Tuple)
        or not isinstance(value, ast.Tuple)
        or len(target.elts) != len(value.elts)
        or not all(isinstance(one, ast.Name) for one in target.elts)
        or any(isinstance(one, ast.Starred) for one in value.elts)
    ):
        return [statement]
    return [
        ast.Assign(targets=[name], value=one)
        for name, one in zip(target.elts, value.elts, strict=True)
    ]


def names_of_function(module: Module, node: Function) -> dict[str, Imported | None]:
    """Return the names that a function binds: its arguments, and what its body assigns."""
    names: dict[str, Imported | None] = dict.fromkeys(argument_names(node.args))
    return names | bound_names(module, node.body)


def argument_names(node: ast.arguments) -> list[str]:
    """Return the names of all arguments of a function."""
    several = [*node.posonlyargs, *node.args, *node.kwonlyargs]
    return [one.arg for one in (*several, node.vararg, node.kwarg) if one is not None]


def bound_names(module: Module, body: Iterable[ast.AST]) -> dict[str, Imported | None]:
    """The names that a body binds in its own scope, and where imported ones come from."""
    names: dict[str, Imported | None] = {}
    outside: dict[str, Imported | None] = {}
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            names.setdefault(node.name)
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, Comprehension):
            for one in ast.walk(node):
                if isinstance(one, ast.NamedExpr):
                    names.setdefault(one.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(_imports(module, node))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.setdefault(node.id)
        elif (
            isinstance(node, ast.expr)
            and not module.has_walrus
            and isinstance(getattr(node, "ctx", None), ast.Load | None)
        ):
            continue  # it binds nothing; most nodes are such
        elif isinstance(node, ast.Global):
            outside.update(dict.fromkeys(node.names, GLOBAL))
        elif isinstance(node, ast.Nonlocal):
            outside.update(dict.fromkeys(node.names))
        else:
            if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                names.setdefault(node.name)
            if isinstance(node, ast.MatchMapping) and node.rest:
                names.setdefault(node.rest)
            waiting.extend(ast.iter_child_nodes(node))
    for name, where in outside.items():
        names.pop(name, None)
        if where is GLOBAL:
            names[name] = where
    return names


def _imports(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    if isinstance(node, ast.Import):
        for one in node.names:
            if one.asname:
                yield one.asname, Imported(one.name)
            else:
                first = one.name.partition(".")[0]
                yield first, Imported(first)
                if first != one.name:  # to be found by its effects alone
                    yield one.name, Imported(one.name)
        return
    origin = node.module or ""
    if node.level:
        parts = module.package.split(".")
        start = ".".join(parts[: len(parts) - node.level + 1])
        origin = f"{start}.{origin}" if origin else start
    for one in node.names:
        if one.name == "*":
            raise CatalogError(
                f"{module.path} imports * from {origin}: what a claim uses cannot be found from "
                "that; import names."
            )
        yield one.asname or one.name, Imported(origin, one.name)


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring or another bare constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_for_types(node: ast.If) -> bool:
    """Whether a block is for type checkers alone."""
    test = node.test
    name = test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")
    return name == "TYPE_CHECKING"


def enters_claim(node: ast.expr) -> bool:
    """Whether a decorator enters a claim into the catalog."""
    called = node.func if isinstance(node, ast.Call) else None
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    return name in CLAIM_DECORATORS
