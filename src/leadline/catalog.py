"""Catalogs: everything that can be chosen in Leadline is registered and found by its name.

A `Catalog` maps names to entries. To add an entry, put one file into the catalog's folder and one
decorator into the file:

    @PROBES.register("stream")
    class StreamProbe: ...

A plug-in adds its own through an entry point of the catalog's group, or through a file given to
`load_plugin` (`--plugin FILE.py`). Nothing is imported before the first lookup. The
docstring of an entry says what it does.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from leadline.choice import Choice, OptionValue, split_choices
from leadline.errors import CatalogError, UnknownName, check_path, nearest_names

__all__ = ["Catalog", "Choice", "OptionValue", "load_plugin", "split_choices"]

T = TypeVar("T")
E = TypeVar("E")


class Catalog(Generic[T]):
    """Names and their entries, loaded at the first lookup.

    `kind` is the noun that messages use, `package` the folder whose files hold the entries (those
    whose name starts with an underscore hold none), `group` the entry-point group of outsiders.
    With `folders`, the entries stand in every folder of that name inside the package.
    `arguments` names what `build` is called with beside the choice; these are not options.
    """

    def __init__(
        self,
        kind: str,
        *,
        package: str | None = None,
        folders: str | None = None,
        group: str | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.package = package
        self.folders = folders
        self.group = group
        self.arguments = arguments
        self._entries: dict[str, T] = {}
        self._loaded = False
        self._lock = threading.RLock()

    def register(self, name: str) -> Callable[[E], E]:
        """Return the decorator that enters a class, a function or a value under `name`."""
        name = Choice(name).name  # refuses what could not be typed on the command line

        def enter(entry: E) -> E:
            if name in self._entries:
                raise CatalogError(
                    f"Two entries are called the {self.kind} {name!r}: "
                    f"{_place_of(self._entries[name])} and {_place_of(entry)}; give the second "
                    "another name."
                )
            self._entries[name] = cast("T", entry)
            return entry

        return enter

    def names(self) -> list[str]:
        """Return every name, sorted."""
        self._load()
        return sorted(self._entries)

    def items(self) -> list[tuple[str, T]]:
        """Return every name with its entry, sorted by name."""
        return [(name, self._entries[name]) for name in self.names()]

    def get(self, name: str) -> T:
        """Return the entry called `name`, or raise `UnknownName` with the nearest names."""
        self._load()
        if name not in self:
            raise UnknownName(self.kind, name, self._entries)
        return self._entries[name]

    def place(self, name: str) -> str:
        """Return where the entry called `name` was written: file and line, or module."""
        return _place_of(self.get(name))

    def options(self, name: str) -> Mapping[str, inspect.Parameter]:
        """Return the options that the entry called `name` takes."""
        entry = self.get(name)
        if not callable(entry):
            return {}
        return {
            key: parameter
            for key, parameter in inspect.signature(entry).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and key not in self.arguments
        }

    def check(self, choice: str | Mapping[str, Any] | Choice) -> Choice:
        """Return the choice, or raise if there is no such entry or it has no such option."""
        choice = Choice.parse(choice)
        entry = self.get(choice.name)
        if not callable(entry):
            raise CatalogError(f"The {self.kind} {choice.name!r} is a value and takes no options.")
        options = self.options(choice.name)
        for option in choice.options:
            if option not in options:
                raise CatalogError(self._unknown_option(choice.name, option, list(options)))
        for option, parameter in options.items():
            if parameter.default is parameter.empty and option not in choice.options:
                raise CatalogError(
                    f"The {self.kind} {choice.name!r} needs the option {option!r}, "
                    f"such as {choice.name}({option}=...)."
                )
        return choice

    def build(self, choice: str | Mapping[str, Any] | Choice, **arguments: Any) -> Any:
        """Call the chosen entry with these arguments and the chosen options; return the result."""
        choice = self.check(choice)
        entry: Any = self.get(choice.name)
        return entry(**arguments, **choice.options)

    def __contains__(self, name: object) -> bool:
        self._load()
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Catalog({self.kind!r}, package={self.package!r}, group={self.group!r})"

    def _unknown_option(self, name: str, option: str, known: list[str]) -> str:
        sentence = f"The {self.kind} {name!r} has no option {option!r}."
        if nearest := nearest_names(option, known, at_most=1):
            sentence += f" Did you mean {nearest[0]!r}?"
        return f"{sentence} Its options: {', '.join(known) if known else 'none'}."

    def _load(self) -> None:
        """Import the folder and the entry points, once. The lock is the importing thread's own."""
        with self._lock:
            if self._loaded:
                return
            self._loaded = True  # first, so that a file of the folder may look up the catalog
            try:
                if self.package is not None:
                    _import_folder(self.package, self.folders)
                if self.group is not None:
                    self._load_entry_points(self.group)
            except BaseException:
                self._loaded = False
                raise

    def _load_entry_points(self, group: str) -> None:
        """Load what outsiders installed; a broken one is left out with a warning.

        An entry point may name a module, whose decorators then run, or the entry itself.
        """
        for point in _entry_points(tuple(sys.path)).select(group=group):
            try:
                entry = point.load()
                if not isinstance(entry, ModuleType) and not self._has(entry):
                    self.register(point.name)(entry)
            except Exception as error:  # anything may go wrong in foreign code
                warnings.warn(
                    f"The {self.kind} {point.name!r} of the entry point {point.value!r} was left "
                    f"out: {type(error).__name__}: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _has(self, entry: object) -> bool:
        return any(other is entry for other in self._entries.values())


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file, so that its decorators enter what it defines; once per file."""
    path = check_path(path, name="The plug-in", error=CatalogError).resolve()
    if not path.is_file():
        raise CatalogError(f"The plug-in {path} is not a file; give the path of a Python file.")
    name = f"leadline_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CatalogError(f"The plug-in {path} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except CatalogError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise CatalogError(
            f"The plug-in {path} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return module


def _import_folder(package: str, only: str | None = None) -> None:
    """Import every module of a package and of the folders in it whose name has no leading _.

    With `only`, import only those inside folders of that name.
    """
    folder = importlib.import_module(package)
    for module in pkgutil.iter_modules(folder.__path__):
        if module.name.startswith("_"):
            continue
        if module.ispkg:
            _import_folder(f"{package}.{module.name}", None if module.name == only else only)
        elif only is None:
            importlib.import_module(f"{package}.{module.name}")


@functools.lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> Any:
    """Every entry point of what is installed on `path`, read once for all catalogs."""
    return importlib.metadata.entry_points()


def _place_of(entry: object) -> str:
    """Say where an entry was written, for people."""
    target: Any = inspect.unwrap(entry) if callable(entry) else entry
    try:
        return f"{inspect.getsourcefile(target)}:{inspect.getsourcelines(target)[1]}"
    except (OSError, TypeError):
        name = getattr(target, "__qualname__", None) or repr(target)
        return f"{getattr(target, '__module__', '?')}.{name}"
