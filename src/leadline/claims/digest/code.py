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
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.claims.digest.names import (
    Function,
    Imported,
    Module,
    bind,
    bound_names,
    names_of_function,
)
from leadline.claims.digest.writing import Definition, Key, Writer
from leadline.errors import CatalogError

__all__ = ["LOCALS", "Code", "Registered"]

EFFECTS = "<effects>"
"""The statements of a module that run when it is imported and bind no name."""
ENTRY = "<entry {}>"
"""A statement, not a decorator, that enters something into a catalog."""
LOCALS = "<locals>"


@dataclass(frozen=True)
class Registered:
    """An entry of a catalog; without a name if the source does not spell it."""

    name: str | None
    key: Key


class Code:
    """The modules of a package by name, parsed when they are first asked for.

    `texts` takes the place of what stands in the files.
    """

    def __init__(self, files: Mapping[str, Path], texts: Mapping[str, str] | None = None) -> None:
        self.files = dict(files)
        self.texts = dict(texts or {})
        self.outside: set[str] = set()
        """Modules that were added: they may stand in any folder, among any files."""
        self._modules: dict[str, Module] = {}
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

    def module(self, name: str) -> Module:
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
        writer = Writer(self, module)
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
            acts = bool(self._acting(module)) or bool(self._imported_for_effects(module))
            # The root package only says where names are: a new one there measures nothing anew.
            around = self._effects_of(outer) if "." in outer and outer in self.files else []
            self._effects[name] = [*([name] if acts else []), *around]
        return self._effects[name]

    def _acting(self, module: Module) -> list[ast.stmt]:
        """The statements that act on import, without those that fill a catalog of the package."""
        writer = Writer(self, module)
        others = [
            one
            for one in module.entering
            if not bound_names(module, [one])
            and not any(
                writer.catalog_of(node) for node in ast.walk(one) if isinstance(node, ast.Call)
            )
        ]
        return [*module.effects, *others]

    def _imported_for_effects(self, module: Module) -> list[str]:
        """Modules of the package that a module imports and names nowhere else.

        They are ordered by what they hold: the order of import lines does not count.
        """
        places: list[str] = []
        for name, bound in module.bindings.items():
            for one in bound:
                if isinstance(one, Imported):
                    place = f"{one.module}.{one.name}" if one.name else one.module
                    # `import a.b` binds a, and is used as a.b; every other form by the bound name.
                    dotted = not one.name and name == one.module.partition(".")[0]
                    spelled = one.module if dotted else name
                    if place in self.files and _count(spelled, self.text(module.name)) == 1:
                        places.append(place)
        return sorted(places, key=self._contents)

    def _contents(self, name: str) -> str:
        """What a module defines, as one digest, without what it refers to."""
        module = self.module(name)
        writer = Writer(self, module)
        writer.out += sorted(module.bindings)
        return writer.definition().digest

    def _parse(self, name: str) -> Module:
        text = self.text(name)
        module = Module(name, self.files[name], ":=" in text)
        tree = ast.parse(text)
        for statement in tree.body:
            bind(module, statement)
        return module

    def _read_entries(self, module: Module, catalogs: dict[Key, list[Registered]]) -> None:
        writer = Writer(self, module)
        for name, bound in module.bindings.items():
            for statement in bound:
                if isinstance(statement, Function | ast.ClassDef):
                    for decorator in statement.decorator_list:
                        _enter(writer, decorator, (module.name, name), catalogs)
        for number, statement in enumerate(module.entering):
            key = (module.name, ENTRY.format(number))
            calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
            for call in calls:
                _enter(writer, call, key, catalogs)


def _enter(writer: Writer, node: ast.expr, key: Key, catalogs: dict[Key, list[Registered]]) -> None:
    """Note what `CATALOG.register(...)` enters, if the node is such a call."""
    catalog = writer.catalog_of(node)
    if catalog is not None:
        first = node.args[0] if isinstance(node, ast.Call) and node.args else None
        name = first.value if isinstance(first, ast.Constant) else None
        entry = Registered(name if isinstance(name, str) else None, key)
        catalogs.setdefault(catalog, []).append(entry)


def _descend(writer: Writer, module: Module, name: str) -> ast.AST:
    """Find a function inside others, such as `cell.<locals>.run`; look names up from there."""
    first, *path = [part for part in name.split(".") if part != LOCALS]
    bound = module.bindings.get(first, [])
    node: ast.AST | None = bound[-1] if bound and isinstance(bound[-1], ast.stmt) else None
    for part in path:
        if isinstance(node, Function):
            writer.enter_scope(names_of_function(module, node))
        elif isinstance(node, ast.ClassDef):
            writer.enter_scope(bound_names(module, node.body), is_class=True)
        node = next((one for one in _inside(node) if one.name == part), None)
    if not isinstance(node, Function | ast.ClassDef):
        raise CatalogError(
            f"The source of {name!r} is not in {module.path}; measure by a function that is "
            "written with `def`."
        )
    return node


def _inside(node: ast.AST | None) -> Iterator[Function | ast.ClassDef]:
    """The functions and classes in a body, the last first: it is the one that holds."""
    waiting = list(ast.iter_child_nodes(node)) if node is not None else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, Function | ast.ClassDef):
            yield one
        elif isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case):
            waiting.extend(ast.iter_child_nodes(one))


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"(?<![\w.]){re.escape(name)}(?!\w)", text))
