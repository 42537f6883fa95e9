"""What a definition says and what it refers to, read from the source without running it.

A definition is a function, a class or a constant at the top of a module. Its text is its syntax
tree written out without what decides no number: docstrings, comments, formatting, annotations,
the types of `cast`, import statements, `pass`, the words of `raise` and `assert`, and the
decorators that enter something into a catalog. A name that stands for another definition of the
package is written as the number of a reference, a name from another library as its full dotted
name. So it makes no difference how or from where something is imported, and what it is called.

References are resolved as Python would do it: local names hide those of the module, imports inside
functions count, re-exports are followed, and so are the public names that `leadline` imports when
they are first used (its block under TYPE_CHECKING says where they live).
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from leadline.choice import Choice, split_choices
from leadline.errors import CatalogError

__all__ = ["LOCALS", "Code", "Definition", "Key", "Registered", "choice_names"]

Key: TypeAlias = tuple[str, str]
"""A module, and the name of a definition in it; the name "" stands for the module as a value."""
EFFECTS = "<effects>"
"""The statements of a module that run when it is imported and bind no name."""
ENTRY = "<entry {}>"
"""A statement, not a decorator, that enters something into a catalog."""
LOCALS = "<locals>"
CLAIM_DECORATORS = ("claim", "measures", "uncheckable")
ENUMERATING = ("items", "names")
"""Methods of a catalog that reach every entry, whatever its name."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SILENT_FIELDS = frozenset(("ctx", "type_comment", "annotation", "returns", "type_params", "kind"))
_CLASS_MARKERS = ("ClassVar", "InitVar", "KW_ONLY")


@dataclass(frozen=True)
class Imported:
    """Where an imported name comes from: a module, or a name in it."""

    module: str
    name: str = ""


GLOBAL = Imported("")
"""Stands in a scope for a name that a `global` statement hands to the module."""


@dataclass(frozen=True)
class Definition:
    """What a definition says, and which others it refers to, in the order of its numbers."""

    digest: str
    targets: tuple[Key, ...]
    words: frozenset[str] = frozenset()
    """Names of choices in its string literals."""
    enumerated: frozenset[Key] = frozenset()
    """Catalogs of which it asks for every entry."""


@dataclass(frozen=True)
class Registered:
    """An entry of a catalog; without a name if the source does not spell it."""

    name: str | None
    key: Key


@dataclass
class _Module:
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


@dataclass
class _Scope:
    names: dict[str, Imported | None]
    outer: _Scope | None
    is_class: bool = False


class Code:
    """The modules of a package by name, parsed when they are first asked for.

    `texts` takes the place of what stands in the files.
    """

    def __init__(self, files: Mapping[str, Path], texts: Mapping[str, str] | None = None) -> None:
        self.files = dict(files)
        self.texts = dict(texts or {})
        self.outside: set[str] = set()
        """Modules that were added: they may stand in any folder, among any files."""
        self._modules: dict[str, _Module] = {}
        self._definitions: dict[Key, Definition] = {}
        self._effects: dict[str, list[str]] = {}
        self._catalogs: dict[Key, list[Registered]] | None = None

    @classmethod
    def of_package(cls, folder: Path) -> Code:
        """Every module below the folder of a package."""
        files: dict[str, Path] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return cls(files)

    def add(self, name: str, path: Path) -> None:
        """Add a module from outside the package, such as a plug-in; once."""
        if name not in self.files:
            self.files[name] = path
            self.outside.add(name)
            self._catalogs = None  # it may enter parts of its own

    def text(self, name: str) -> str:
        """The source of a module."""
        if name not in self.texts:
            self.texts[name] = self.files[name].read_text(encoding="utf-8")
        return self.texts[name]

    def but(self, texts: Mapping[str, str]) -> Code:
        """The same code with other texts for some of its modules."""
        other = Code(self.files, {**self.texts, **texts})
        other.outside = set(self.outside)
        other._modules = {n: one for n, one in self._modules.items() if n not in texts}
        return other

    def definition(self, key: Key) -> Definition:
        """The definition called by this key."""
        known = self._definitions.get(key)
        if known is None:
            known = self._definitions[key] = self._define(key)
        return known

    @property
    def catalogs(self) -> Mapping[Key, Sequence[Registered]]:
        """The definitions that something is entered into, and what."""
        if self._catalogs is None:
            self._catalogs = {}
            for name in self.files:
                if re.search(r"\.register\b", self.text(name)):
                    self._read_entries(self.module(name), self._catalogs)
        return self._catalogs

    def module(self, name: str) -> _Module:
        """A module of the package, parsed."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def resolve(self, module: str, names: Sequence[str]) -> tuple[Key | str | None, list[str]]:
        """Follow names from a module on: to a definition or an outside name, and what is left."""
        names, steps = list(names), 0
        while names and module in self.files:
            steps += 1
            if steps > 100:
                raise CatalogError(f"The imports of {names[0]!r} in {module} go round in a circle.")
            first, rest = names[0], names[1:]
            bound = self.module(module).bindings.get(first)
            if bound is None and f"{module}.{first}" in self.files:
                module, names = f"{module}.{first}", rest
            elif bound is None:
                return None, names
            elif len(bound) == 1 and isinstance(bound[0], Imported):
                module = bound[0].module
                names = [bound[0].name, *rest] if bound[0].name else rest
            else:
                return (module, first), rest
        if module in self.files:
            return (module, ""), names
        return ".".join([module, *names]), []

    def _define(self, key: Key) -> Definition:
        module, name = self.module(key[0]), key[1]
        writer = _Writer(self, module)
        if not name:
            for one, bound in sorted(module.bindings.items()):
                if not isinstance(bound[0], Imported):
                    writer.out.append(one)
                    writer.refer((module.name, one))
        elif name == EFFECTS:
            writer.write(self._acting(module))
            for one in self._imported_for_effects(module):
                writer.refer((one, ""))
        elif name.startswith(ENTRY.partition("{")[0]):
            writer.write(module.entering[int(name[len(ENTRY.partition("{")[0]) : -1])])
        elif name in module.bindings:
            for one in module.bindings[name]:
                if isinstance(one, Imported):
                    writer.write_outside(*self.resolve(one.module, [one.name] if one.name else []))
                else:
                    writer.write_top(one)
        else:
            writer.write_top(_descend(writer, module, name))
        if name != EFFECTS:
            for place in self._effects_of(module.name):
                writer.refer((place, EFFECTS))
        return writer.definition()

    def _effects_of(self, name: str) -> list[str]:
        """The module and the packages around it, those of which do something on import."""
        if name not in self._effects:
            module, outer = self.module(name), name.rpartition(".")[0]
            acts = bool(self._acting(module)) or any(self._imported_for_effects(module))
            around = self._effects_of(outer) if outer in self.files else []
            self._effects[name] = [*([name] if acts else []), *around]
        return self._effects[name]

    def _acting(self, module: _Module) -> list[ast.stmt]:
        """The statements that act on import, without those that fill a catalog of the package."""
        writer = _Writer(self, module)
        others = [
            one
            for one in module.entering
            if not _bound_names(module, [one])
            and not any(
                writer.catalog_of(node) for node in ast.walk(one) if isinstance(node, ast.Call)
            )
        ]
        return [*module.effects, *others]

    def _imported_for_effects(self, module: _Module) -> Iterator[str]:
        """Modules of the package that a module imports and names nowhere else."""
        for bound in module.bindings.values():
            for one in bound:
                if isinstance(one, Imported):
                    place = f"{one.module}.{one.name}" if one.name else one.module
                    name = one.name or one.module
                    if place in self.files and _count(name, self.text(module.name)) == 1:
                        yield place

    def _parse(self, name: str) -> _Module:
        text = self.text(name)
        module = _Module(name, self.files[name], ":=" in text)
        tree = ast.parse(text)
        for statement in tree.body:
            _bind(module, statement)
        return module

    def _read_entries(self, module: _Module, catalogs: dict[Key, list[Registered]]) -> None:
        writer = _Writer(self, module)
        for name, bound in module.bindings.items():
            for statement in bound:
                if isinstance(statement, _Function | ast.ClassDef):
                    for decorator in statement.decorator_list:
                        _enter(writer, decorator, (module.name, name), catalogs)
        for number, statement in enumerate(module.entering):
            key = (module.name, ENTRY.format(number))
            calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
            for call in calls:
                _enter(writer, call, key, catalogs)


def _enter(
    writer: _Writer, node: ast.expr, key: Key, catalogs: dict[Key, list[Registered]]
) -> None:
    """Note what `CATALOG.register(...)` enters, if the node is such a call."""
    catalog = writer.catalog_of(node)
    if catalog is not None:
        first = node.args[0] if isinstance(node, ast.Call) and node.args else None
        name = first.value if isinstance(first, ast.Constant) else None
        entry = Registered(name if isinstance(name, str) else None, key)
        catalogs.setdefault(catalog, []).append(entry)


class _Writer:
    """Writes statements of a module as text with numbered references."""

    def __init__(self, code: Code, module: _Module) -> None:
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
        if isinstance(node, _Function):
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

    def _function(self, node: _Function, name: str | None = None) -> None:
        self.out.append(f"({type(node).__name__} {node.name if name is None else name}")
        self._decorators(node.decorator_list)
        self._arguments(node.args)
        outer = self.scope
        self.enter_scope(_names_of_function(self.module, node))
        self.write(node.body)
        self.scope = outer
        self.out.append(")")

    def _lambda(self, node: ast.Lambda) -> None:
        self.out.append("(Lambda")
        self._arguments(node.args)
        outer = self.scope
        self.enter_scope(dict.fromkeys(_argument_names(node.args)))
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
            if self.catalog_of(node) is None and not _enters_claim(node):
                self.out.append("@")
                self.write(node)

    def _class(self, node: ast.ClassDef, name: str | None = None) -> None:
        self.out.append(f"(Class {node.name if name is None else name}")
        self._decorators(node.decorator_list)
        self.write(node.bases)
        self.write(node.keywords)
        outer = self.scope
        self.enter_scope(_bound_names(self.module, node.body), is_class=True)
        self.write(node.body)
        self.scope = outer
        self.out.append(")")

    def _comprehension(self, node: _Comprehension) -> None:
        self.out.append(f"({type(node).__name__}")
        for one in node.generators:
            self._iterated(one.iter)
        self.write(node.generators[0].iter)  # alone of them, it cannot see the new names
        outer, names = self.scope, dict[str, Imported | None]()
        for one in node.generators:
            names.update(_bound_names(self.module, [one.target]))
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
        if not _is_text(node):
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
        if _is_for_types(node):
            for statement in node.orelse:
                self.write(statement)
        else:
            self._plain(node)

    def _nothing(self, node: ast.AST) -> None:
        """Import statements, `global` and `pass`: what they do is in the references."""


_SPECIAL = {
    ast.AnnAssign: _Writer._annotated,
    ast.Assert: _Writer._assert,
    ast.Assign: _Writer._assign,
    ast.AsyncFor: _Writer._for,
    ast.AsyncFunctionDef: _Writer._function,
    ast.Attribute: _Writer._name,
    ast.Call: _Writer._call,
    ast.ClassDef: _Writer._class,
    ast.Constant: _Writer._constant,
    ast.DictComp: _Writer._comprehension,
    ast.Expr: _Writer._expression,
    ast.For: _Writer._for,
    ast.FunctionDef: _Writer._function,
    ast.GeneratorExp: _Writer._comprehension,
    ast.Global: _Writer._nothing,
    ast.If: _Writer._if,
    ast.Import: _Writer._nothing,
    ast.ImportFrom: _Writer._nothing,
    ast.JoinedStr: _Writer._joined,
    ast.Lambda: _Writer._lambda,
    ast.ListComp: _Writer._comprehension,
    ast.Name: _Writer._name,
    ast.Pass: _Writer._nothing,
    ast.Raise: _Writer._raise,
    ast.SetComp: _Writer._comprehension,
    ast.Starred: _Writer._starred,
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


def _bind(module: _Module, statement: ast.stmt) -> None:
    """Note what a statement at the top of a module binds, does or enters."""
    if _is_text(statement) or (isinstance(statement, ast.Expr) and _enters_claim(statement.value)):
        return
    if isinstance(statement, ast.If) and _is_for_types(statement):
        for name, where in _bound_names(module, statement.body).items():
            if where is not None:
                module.bindings.setdefault(name, [where])
        for other in statement.orelse:
            _bind(module, other)
        return
    for part in _one_by_one(statement):
        names = _bound_names(module, [part])
        for name, where in names.items():
            if name != "__all__":
                module.bindings.setdefault(name, []).append(where or part)
        defines = isinstance(part, _Function | ast.ClassDef)
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


def _descend(writer: _Writer, module: _Module, name: str) -> ast.AST:
    """Find a function inside others, such as `cell.<locals>.run`; look names up from there."""
    first, *path = [part for part in name.split(".") if part != LOCALS]
    bound = module.bindings.get(first, [])
    node: ast.AST | None = bound[-1] if bound and isinstance(bound[-1], ast.stmt) else None
    for part in path:
        if isinstance(node, _Function):
            writer.enter_scope(_names_of_function(module, node))
        elif isinstance(node, ast.ClassDef):
            writer.enter_scope(_bound_names(module, node.body), is_class=True)
        node = next((one for one in _inside(node) if one.name == part), None)
    if not isinstance(node, _Function | ast.ClassDef):
        raise CatalogError(
            f"The source of {name!r} is not in {module.path}; measure by a function that is "
            "written with `def`."
        )
    return node


def _inside(node: ast.AST | None) -> Iterator[_Function | ast.ClassDef]:
    """The functions and classes in a body, the last first: it is the one that holds."""
    waiting = list(ast.iter_child_nodes(node)) if node is not None else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, _Function | ast.ClassDef):
            yield one
        elif isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case):
            waiting.extend(ast.iter_child_nodes(one))


def _names_of_function(module: _Module, node: _Function) -> dict[str, Imported | None]:
    names: dict[str, Imported | None] = dict.fromkeys(_argument_names(node.args))
    return names | _bound_names(module, node.body)


def _argument_names(node: ast.arguments) -> list[str]:
    several = [*node.posonlyargs, *node.args, *node.kwonlyargs]
    return [one.arg for one in (*several, node.vararg, node.kwarg) if one is not None]


def _bound_names(module: _Module, body: Iterable[ast.AST]) -> dict[str, Imported | None]:
    """The names that a body binds in its own scope, and where imported ones come from."""
    names: dict[str, Imported | None] = {}
    outside: dict[str, Imported | None] = {}
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Function | ast.ClassDef):
            names.setdefault(node.name)
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, _Comprehension):
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


def _imports(module: _Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
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


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"(?<![\w.]){re.escape(name)}(?!\w)", text))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.If) -> bool:
    test = node.test
    name = test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")
    return name == "TYPE_CHECKING"


def _enters_claim(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    return name in CLAIM_DECORATORS


def _files_beside(folder: Path) -> str:
    """A digest of the data files beside a module that asks where it stands."""
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            content.update(path.relative_to(folder).as_posix().encode())
            content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()
