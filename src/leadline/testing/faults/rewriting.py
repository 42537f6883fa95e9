"""Give one module of a model another `forward`: its own source with a few places changed.

A code fault is a slip in somebody's source, so it is made there: the source of `forward` is parsed,
expressions, statements or callees are exchanged, and the module gets a class of its own with the
changed method. Other modules of the class stay as they are. The changed source is what `inspect`
shows, so that a diagnosis can point to the line.

    rewrite(block, Edit("residual + hidden_states", "hidden_states", place=1))
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from leadline.errors import InputError

__all__ = ["Edit", "rewrite"]

_COUNTER = itertools.count(1)


@dataclass(frozen=True)
class Edit:
    """One change: `old` as `ast.unparse` prints it, `new` instead; `place` counts equal ones from 0.

    An expression or a callee (the name before the parentheses of a call) becomes another
    expression, a statement becomes one or more statements, and what is inserted with the kind
    "start" stands before the first statement. With `place` None every occurrence changes.
    """

    old: str
    new: str
    kind: Literal["expression", "statement", "callee", "start"] = "expression"
    place: int | None = 0


def rewrite(
    module: nn.Module, *edits: Edit, names: Mapping[str, Any] | None = None, method: str = "forward"
) -> None:
    """Change a method of one module in place; `names` are globals that the new source may use."""
    cls = type(module)
    function: Any = inspect.unwrap(getattr(cls, method))
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    for edit in edits:
        _apply(edit, definition, cls)
    # Defaults are those of the old function; they were evaluated when its module was imported.
    definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]
    definition.args.kw_defaults = [d and ast.Constant(None) for d in definition.args.kw_defaults]
    source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    file = f"<{cls.__name__}.{method} of a fault, {next(_COUNTER)}>"
    code = next(c for c in compile(source, file, "exec").co_consts if inspect.iscode(c))
    if code.co_freevars:
        raise InputError(
            f"{cls.__name__}.{method} uses {', '.join(code.co_freevars)} of an outer scope and "
            "cannot be rewritten; choose a host whose blocks do not."
        )
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    changed = types.FunctionType(
        code, {**function.__globals__, **(names or {})}, method, function.__defaults__
    )
    changed.__kwdefaults__ = function.__kwdefaults__
    changed.__module__ = cls.__module__
    module.__class__ = type(cls.__name__, (cls,), {method: changed, "__module__": cls.__module__})


def _apply(edit: Edit, definition: ast.FunctionDef, cls: type) -> None:
    if edit.kind == "start":
        definition.body[:0] = ast.parse(edit.new).body
        return
    exchange = _Exchange(edit)
    exchange.visit(definition)
    if exchange.count <= (edit.place or 0):
        raise InputError(
            f"The source of {cls.__name__} has {edit.old!r} {exchange.count} times and "
            f"occurrence {(edit.place or 0) + 1} was to be changed; the library may have changed: "
            "adapt the layout of this family in leadline.testing.faults.layouts."
        )


class _Exchange(ast.NodeTransformer):
    """Exchanges the n-th node whose source is the wanted one."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit
        self.count = 0

    def _is_wanted(self, node: ast.AST) -> bool:
        if ast.unparse(node) != self.edit.old:
            return False
        self.count += 1
        return self.edit.place is None or self.count - 1 == self.edit.place

    def visit(self, node: ast.AST) -> Any:
        if self.edit.kind == "callee":
            node = self.generic_visit(node)
            if isinstance(node, ast.Call) and self._is_wanted(node.func):
                node.func = ast.parse(self.edit.new, mode="eval").body
            return node
        is_kind = isinstance(node, ast.expr if self.edit.kind == "expression" else ast.stmt)
        if is_kind and self._is_wanted(node):
            if self.edit.kind == "expression":
                return ast.parse(self.edit.new, mode="eval").body
            return ast.parse(self.edit.new).body
        return self.generic_visit(node)
