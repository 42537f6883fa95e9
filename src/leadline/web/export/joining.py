"""ES modules as one classic script, which a browser also runs from a file on disk.

    import { a } from "./x.js";     const $module1 = (() => {        // x.js
    export function b() {}    ->        ...
                                        return { a };
                                    })();
                                    const $module2 = (() => {
                                        const { a } = $module1;
                                        function b() {}
                                        return { b };
                                    })();

Every module becomes a function that runs once, after those that it imports from. Only the plainest
forms are understood: `import { a, b as c } from "./x.js";` on a line of its own, and `export` before
a function, a const or a class. Whatever else begins with import or export is refused, as is a circle
of modules, which functions that run once cannot have.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from leadline.errors import InputError

__all__ = ["join_modules", "modules_in_order"]

_IMPORT = re.compile(r'import \{ ([^{}"]+) \} from "(\.{1,2}/[\w./-]+\.js)";')
_NAME = re.compile(r"([\w$]+)(?: as ([\w$]+))?")
_EXPORT = re.compile(r"export ((?:async )?function\*? ?|const |class )([\w$]+)(.*)", re.DOTALL)
_OTHER_FORM = re.compile(r"\s*(?:import|export)(?=[\s{*\"'])")
_LATER_FORM = re.compile(r"\bimport\s*\(|\bimport\.meta\b")


def join_modules(modules: Mapping[str, str], entry: str) -> str:
    """Return one script that does what loading the module `entry` would do.

    `modules` holds their texts by name, such as "play/index.js"; those that nothing imports are left
    out. What stands at the top of a module may not be awaited.
    """
    order = modules_in_order(modules, entry)
    places = {name: f"$module{number}" for number, name in enumerate(order, 1)}
    parts = [_wrapped(name, modules[name], places) for name in order]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


def modules_in_order(modules: Mapping[str, str], entry: str) -> list[str]:
    """Return the modules that `entry` needs, each after those that it imports from."""
    order: list[str] = []
    way: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name in way:
            circle = " -> ".join([*way[way.index(name) :], name])
            raise InputError(f"Modules that import each other cannot be joined: {circle}.")
        if name not in modules:
            wanted = f"{way[-1]} imports {name}" if way else f"{name} is to be joined"
            raise InputError(f"{wanted}, but there is no such module.")
        way.append(name)
        for pairs, source in _imports(name, modules[name]):
            visit(source)
            for wanted in [there for there, _ in pairs if there not in _exports(modules[source])]:
                raise InputError(f"{name} imports {wanted}, which {source} does not export.")
        way.pop()
        order.append(name)

    visit(entry)
    return order


def _imports(name: str, text: str) -> list[tuple[list[tuple[str, str]], str]]:
    """What a module imports: pairs of the name there and the name here, and the module."""
    imports: list[tuple[list[tuple[str, str]], str]] = []
    for line in text.splitlines():
        if match := _IMPORT.fullmatch(line):
            source = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[2]))
            imports.append((_names(name, line, match[1]), source))
    return imports


def _exports(text: str) -> list[str]:
    return [match[2] for line in text.splitlines() if (match := _EXPORT.fullmatch(line))]


def _names(module: str, line: str, text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        match = _NAME.fullmatch(part.strip())
        if match is None:
            raise _refusal(module, line)
        pairs.append((match[1], match[2] or match[1]))
    return pairs


def _wrapped(name: str, text: str, places: Mapping[str, str]) -> str:
    """One module as a function that has run."""
    imports = iter(_imports(name, text))
    lines = [f"// {name}", f"const {places[name]} = (() => {{"]
    for line in text.splitlines():
        if _LATER_FORM.search(line):
            raise _refusal(name, line)
        if _IMPORT.fullmatch(line):
            pairs, source = next(imports)
            names = ", ".join(
                there if there == here else f"{there}: {here}" for there, here in pairs
            )
            lines.append(f"const {{ {names} }} = {places[source]};")
        elif match := _EXPORT.fullmatch(line):
            lines.append(f"{match[1]}{match[2]}{match[3]}")
        elif _OTHER_FORM.match(line):
            raise _refusal(name, line)
        else:
            lines.append(line)
    return "\n".join([*lines, f"return {{ {', '.join(_exports(text))} }};", "})();"])


def _refusal(module: str, line: str) -> InputError:
    return InputError(
        f"{module} holds `{line.strip()}`, a form that cannot be joined; write "
        '`import { a, b } from "./x.js";` on one line, or export before a function, a const or a '
        "class."
    )
