"""A definition written out as text with numbered references to others."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias

from leadline.choice import Choice, split_choices
from leadline.claims.digest.names import (
    GLOBAL,
    Comprehension,
    Function,
    Imported,
    Module,
    argument_names,
    bound_names,
    enters_claim,
    is_for_types,
    is_text,
    names_of_function,
)
from leadline.errors import CatalogError

__all__ = ["Definition", "Key", "Resolver", "Writer", "choice_names"]

Key: TypeAlias = tuple[str, str]
"""A module, and the name of a definition in it; the name "" stands for the module as a value."""
ENUMERATING = ("items", "names")
"""Methods of a catalog that reach every entry, whatever its name."""

_SILENT_FIELDS = frozenset(("ctx", "type_comment", "annotation", "returns", "type_params", "kind"))
_CLASS_MARKERS = ("ClassVar", "InitVar", "KW_ONLY")


class Resolver(Protocol):
    """Follows names through a package."""

    outside: set[str]

    def resolve(self, module: str, names: Sequence[str]) -> tuple[Key | str | None, list[str]]:
        """Follow names from a module on: to a definition or an outside name, and what is left."""
        ...


@dataclass(frozen=True)
class Definition:
    """What a definition says, and which others it refers to, in the order of its numbers."""

    digest: str
    targets: tuple[Key, ...]
    words: frozenset[str] = frozenset()
    """Names of choices in its string literals."""
    enumerated: frozenset[Key] = frozenset()
    """Catalogs of which it asks for every entry."""


@dataclass
class _Scope:
    names: dict[str, Imported | None]
    outer: _Scope | None
    is_class: bool = False


class Writer:
    """Writes statements of a module as text with numbered references."""

    def __init__(self, code: Resolver, module: Module) -> None:
        self.code = code
        self.module = module
        self.scope: _Scope | None = None
        self.out: list[str] = []
        self.words: set[str] = set()
        self.enumerated: set[Key] = set()
        self._numbers: dict[Key, int] = {}
        self._silent = 0

    def definition(self) -> Definition:
        """What was written."""
        digest = hashlib.sha256(" ".join(self.out).encode()).hexdigest()
        return Definition(
            digest, (*self._numbers,), frozenset(self.words), frozenset(self.enumerated)
        )

    def refer(self, key: Key) -> None:
        """Write a reference."""
        self.out.append(f"@{self._numbers.setdefault(key, len(self._numbers))}")

    def write_top(self, node: ast.AST) -> None:
        """Write a definition itself: what it is called does not count."""
        if isinstance(node, Function):
            self._function(node, name="")
        elif isinstance(node, ast.ClassDef):
            self._class(node, name="")
        else:
            self.write(node)

    def write(self, node: object) -> None:
        """Write a node of the syntax tree, a list of them, or a value in one."""
        if isinstance(node, list):
            self.out.append("[")
            for one in node:
                self.write(one)
            self.out.append("]")
        elif not isinstance(node, ast.AST):
            self.out.append(repr(node))
        elif (special := _SPECIAL.get(type(node))) is not None:
            special(self, node)
        else:
            self._plain(node)

    def write_outside(self, target: Key | str | None, rest: list[str]) -> None:
        """Write what a chain of names was resolved to."""
        if isinstance(target, tuple):
            self.refer(target)
        elif target is not None:
            self.out.append(f"<{target}>")
        self.out.extend(f".{name}" for name in rest)

    def catalog_of(self, node: ast.expr) -> Key | None:
        """The definition D of `D.register(...)` or `D.register`, if the package has it."""
        if isinstance(node, ast.Call):
            node = node.func
        if not isinstance(node, ast.Attribute) or node.attr != "register":
            return None
        target, rest = self._target(node.value)
        return target if isinstance(target, tuple) and target[1] and not rest else None

    def enter_scope(self, names: dict[str, Imported | None], *, is_class: bool = False) -> None:
        """Look up names here first from now on."""
        self.scope = _Scope(names, self.scope, is_class)

    def _plain(self, node: ast.AST) -> None:
        self.out.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is not None and value != [] and name not in _SILENT_FIELDS:
                self.out.append(f"{name}=")
                self.write(value)
        self.out.append(")")

    def _lookup(self, name: str) -> Imported | str | None:
        """Where an imported name comes from, "local", or None for a name of the module."""
        scope, inner = self.scope, True
        while scope is not None:
            if name in scope.names and (inner or not scope.is_class):
                where = scope.names[name]
                return None if where is GLOBAL else where or "local"
            scope, inner = scope.outer, False
        return None

    def _target(self, node: ast.expr) -> tuple[Key | str | None, list[str]]:
        """What `a` or `a.b.c` stands for, if `a` is no local variable, and the names left."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None, []
        where = self._lookup(node.id)
        if isinstance(where, Imported):
            return self.code.resolve(where.module, [*([where.name] if where.name else []), *names])
        if where is None and node.id in self.module.bindings:
            return self.code.resolve(self.module.name, [node.id, *names])
        return None, []

    def _name(self, node: ast.Name | ast.Attribute) -> None:
        target, rest = self._target(node)
        if target is None and isinstance(node, ast.Name):
            self.out.append(node.id)
            if node.id == "__file__" and self.module.name not in self.code.outside:
                self.out.append(_files_beside(self.module.path.parent))
        elif target is None:
            self._plain(node)
        else:
            self.write_outside(target, rest)
            if isinstance(target, tuple) and rest[:1] and rest[0] in ENUMERATING:
                self.enumerated.add(target)

    def _iterated(self, node: ast.expr) -> None:
        """Note a catalog of which every entry is asked for: `for name in CATALOG`."""
        target, rest = self._target(node)
        if isinstance(target, tuple) and not rest:
            self.enumerated.add(target)

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            if self._silent:
                self.out.append("''")
                return
            self.words.update(choice_names(node.value))
        self.out.append(repr(node.value))

    def _joined(self, node: ast.JoinedStr) -> None:
        if self._silent:
            self.out.append("''")
            return
        parts, spelling = list[str | ast.expr](), ""
        for one in node.values:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                spelling += one.value
                if parts and isinstance(parts[-1], str):
                    parts[-1] += one.value  # versions of Python differ in where they cut
                else:
                    parts.append(one.value)
            else:
                spelling += "_"
                parts.append(one)
        self.words.update(choice_names(spelling))
        self.out.append("(Joined")
        for part in parts:
            self.write(part)
        self.out.append(")")

    def _function(self, node: Function, name: str | None = None) -> None:
        self.out.append(f"({type(node).__name__} {node.name if name is None else name}")
        self._decorators(node.decorator_list)
        self._arguments(node.args)
        outer = self.scope
        self.enter_scope(names_of_function(self.module, node))
        self.write(node.body)
        self.scope = outer
        self.out.append(")")

    def _lambda(self, node: ast.Lambda) -> None:
        self.out.append("(Lambda")
        self._arguments(node.args)
        outer = self.scope
        self.enter_scope(dict.fromkeys(argument_names(node.args)))
        self.write(node.body)
        self.scope = outer
        self.out.append(")")

    def _arguments(self, node: ast.arguments) -> None:
        for name in ("posonlyargs", "args", "kwonlyargs"):
            self.out.append(f"{name} {' '.join(one.arg for one in getattr(node, name))}")
        for name in ("vararg", "kwarg"):
            if (one := getattr(node, name)) is not None:
                self.out.append(f"{name} {one.arg}")
        self.write(node.defaults)
        self.write(node.kw_defaults)

    def _decorators(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            if self.catalog_of(node) is None and not enters_claim(node):
                self.out.append("@")
                self.write(node)

    def _class(self, node: ast.ClassDef, name: str | None = None) -> None:
        self.out.append(f"(Class {node.name if name is None else name}")
        self._decorators(node.decorator_list)
        self.write(node.bases)
        self.write(node.keywords)
        outer = self.scope
        self.enter_scope(bound_names(self.module, node.body), is_class=True)
        self.write(node.body)
        self.scope = outer
        self.out.append(")")

    def _comprehension(self, node: Comprehension) -> None:
        self.out.append(f"({type(node).__name__}")
        for one in node.generators:
            self._iterated(one.iter)
        self.write(node.generators[0].iter)  # alone of them, it cannot see the new names
        outer, names = self.scope, dict[str, Imported | None]()
        for one in node.generators:
            names.update(bound_names(self.module, [one.target]))
        self.enter_scope(names)
        for number, one in enumerate(node.generators):
            self.write(one.target)
            if number:
                self.write(one.iter)
            self.write(one.ifs)
        for name in ("elt", "key", "value"):
            if (value := getattr(node, name, None)) is not None:
                self.write(value)
        self.scope = outer
        self.out.append(")")

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._iterated(node.iter)
        self._plain(node)

    def _starred(self, node: ast.Starred) -> None:
        self._iterated(node.value)
        self._plain(node)

    def _call(self, node: ast.Call) -> None:
        target, rest = self._target(node.func)
        if target == "typing.cast" and len(node.args) == 2:
            self.write(node.args[1])
            return
        if isinstance(target, tuple) and target[1] == "Catalog" and not rest:
            self.refer(target)  # its words and its folder decide nothing
            return
        if isinstance(node.func, ast.Name) and node.func.id in ("dict", "list", "sorted", "tuple"):
            for one in node.args:
                self._iterated(one)
        self._plain(node)

    def _expression(self, node: ast.Expr) -> None:
        if not is_text(node):
            self.write(node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        inside = self.scope is not None and self.scope.is_class
        if not inside and node.value is None:
            return
        self.out.append("(Field" if inside else "(Assign")
        if inside:  # dataclasses read the annotations of a class
            written = ast.dump(node.annotation)
            self.out.extend(marker for marker in _CLASS_MARKERS if marker in written)
        self.out.append("[" if not inside else "")
        self.write(node.target)
        self.out.append("]" if not inside else "")
        if node.value is not None:
            self.write(node.value)
        self.out.append(")")

    def _assign(self, node: ast.Assign) -> None:
        self.out.append("(Assign")
        self.write(node.targets)
        self.write(node.value)
        self.out.append(")")

    def _raise(self, node: ast.Raise) -> None:
        self.out.append("(Raise")
        self._silent += 1
        self.write(node.exc)
        self._silent -= 1
        self.write(node.cause)
        self.out.append(")")

    def _assert(self, node: ast.Assert) -> None:
        self.out.append("(Assert")
        self.write(node.test)
        self.out.append(")")

    def _if(self, node: ast.If) -> None:
        if is_for_types(node):
            for statement in node.orelse:
                self.write(statement)
        else:
            self._plain(node)

    def _nothing(self, node: ast.AST) -> None:
        """Import statements, `global` and `pass`: what they do is in the references."""


_SPECIAL = {
    ast.AnnAssign: Writer._annotated,
    ast.Assert: Writer._assert,
    ast.Assign: Writer._assign,
    ast.AsyncFor: Writer._for,
    ast.AsyncFunctionDef: Writer._function,
    ast.Attribute: Writer._name,
    ast.Call: Writer._call,
    ast.ClassDef: Writer._class,
    ast.Constant: Writer._constant,
    ast.DictComp: Writer._comprehension,
    ast.Expr: Writer._expression,
    ast.For: Writer._for,
    ast.FunctionDef: Writer._function,
    ast.GeneratorExp: Writer._comprehension,
    ast.Global: Writer._nothing,
    ast.If: Writer._if,
    ast.Import: Writer._nothing,
    ast.ImportFrom: Writer._nothing,
    ast.JoinedStr: Writer._joined,
    ast.Lambda: Writer._lambda,
    ast.ListComp: Writer._comprehension,
    ast.Name: Writer._name,
    ast.Pass: Writer._nothing,
    ast.Raise: Writer._raise,
    ast.SetComp: Writer._comprehension,
    ast.Starred: Writer._starred,
}


@cache
def choice_names(text: str) -> frozenset[str]:
    """The names in a text that spells choices, such as `hyper(lanes=4)`; none in a sentence."""
    try:
        return frozenset(_spelled(split_choices(text)))
    except CatalogError:
        return frozenset()


def _spelled(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Choice):
            yield value.name
            yield from _spelled(value.options.values())
        elif isinstance(value, tuple):
            yield from _spelled(value)
        elif isinstance(value, str):
            yield value


def _files_beside(folder: Path) -> str:
    """A digest of the data files beside a module that asks where it stands."""
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            content.update(path.relative_to(folder).as_posix().encode())
            content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()
