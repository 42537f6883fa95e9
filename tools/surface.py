"""List what users rely on, as JSON, and say what another version of it lacks.

    python -m tools.surface > surface.json               the surface of the leadline that is imported
    python -m tools.surface --against surface.json       what that file has and this leadline lacks
    python -m tools.surface --parts names,commands       some parts alone

    names      the public names of `leadline`, with their signatures
    imports    what pages and examples import from modules below `leadline`, and what plug-ins need
    results    the attributes and methods of what these return, reached as users reach them:
               `trainability().rows[].usable` is a path of attributes, so no class name matters
    commands   every command of the command line with its arguments and options
    catalogs   the entries of every catalog with their options
    json       the keys that each command prints with --json, with the types of their values

Nothing here knows in which module a thing lives, but for `imports` and the command line: so a
surface can be compared across a reorganisation. What is added is no difference: a new name, a new
key, a parameter with a default.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import sys
import tempfile
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

Surface = dict[str, Any]

IMPORTS: dict[str, tuple[str, ...]] = {
    # Pages and examples name these modules.
    "leadline.errors": ("RecipeError",),
    "leadline.lab.adapters": (
        "Bottleneck",
        "adapter_parameters",
        "add_bottlenecks",
        "add_lora",
        "switched_off",
    ),
    "leadline.lab.grid": ("Axis", "Grid"),
    "leadline.reading.diagnosis.case": ("Case", "outliers"),
    "leadline.reading.diagnosis.rule": ("Evidence", "Rule", "rule"),
    "leadline.testing": ("assert_healthy",),
    "leadline.lab.pair": ("post", "pre"),
    "leadline.lab.tasks": ("TASKS", "Batch", "Drawn", "Task", "build_task"),
    "leadline.parts.branches": ("ATTENTIONS", "MLPS", "Branch", "Run"),
    "leadline.parts.branches.mlp": ("Gated", "Plain"),
    "leadline.parts.connections": ("CONNECTIONS", "Connection", "Scalar", "State"),
    "leadline.parts.inits": ("INITS", "Init"),
    "leadline.parts.norms": ("NORMS",),
    "leadline.parts.place": ("Place",),
    "leadline.parts.placements": ("PLACEMENTS", "Placement"),
    "leadline.parts.positions": ("POSITIONS", "Positions"),
    "leadline.reporting": ("as_json",),
    "leadline.reproduce.gradient_flow": ("Setting", "gradient_flow"),
    "leadline.reproduce.layer_dropping": ("Setting", "layer_dropping"),
    "leadline.reproduce.learning_identity": ("learning_identity",),
    "leadline.testing.conformance": ("check_part",),
    "leadline.testing.tiny": ("Linear", "MeanAttention", "Scale"),
    "leadline.testing.zoo": ("ZOO", "Specimen", "specimens"),
    # The page on architecture names the decorators alone; a plug-in imports them from here.
    "leadline.analysis.claim": ("Check", "Picture"),
    "leadline.claims": ("CLAIMS", "Measured", "Trial", "claim", "uncheckable"),
    "leadline.lab.engines": ("ENGINES", "Engine", "Job", "News", "Orders"),
    "leadline.lab.presets": ("PRESETS", "Preset"),
    "leadline.parts.recipes": ("RECIPES",),
    "leadline.probes": ("PROBES", "At", "Each", "PerToken", "Single"),
    "leadline.record": ("Finding", "Quantity"),
    "leadline.reproduce": ("EXPERIMENTS",),
    "leadline.theory": (
        "BOUNDS",
        "COLLAPSE_BOUNDS",
        "LAWS",
        "AttentionFacts",
        "Bound",
        "CollapseBound",
        "Condition",
        "DepthFacts",
        "Law",
        "LayerFacts",
        "StackFacts",
    ),
}
"""Modules below `leadline` and the names that users import from them."""

SPECIAL = (
    "__call__",
    "__contains__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iter__",
    "__len__",
    "__str__",
    "_repr_html_",
)
"""Methods with underscores that users call by a syntax, or a notebook calls for them."""


@dataclass(frozen=True)
class Case:
    """One call of the command line that prints JSON."""

    name: str
    arguments: str
    slow: bool = False
    code: int = 0


_TINY = "--recipe default --set depth=2 --set width=8 --set heads=2"
_MODEL = f"{_TINY} --set vocabulary=16 --set context=8 --random 1x6"
_TRAINING = '--task "copy(symbols=4, items=3)" --set batch=2 --set gauges=2 --set examples=4'
CASES: tuple[Case, ...] = (
    Case("measure", f"measure {_MODEL} --ablate block --json -o a.leadline"),
    Case(
        "measure, attention and collapse",
        f"measure {_MODEL} --set placement=post --json -o b.leadline --probes "
        "stream,attention,attention_spectrum,attention_product,residual,collapse,recall",
    ),
    Case(
        "measure, linear maps",
        f"measure {_MODEL} --json -o c.leadline --probes stream,jacobian,lyapunov,identity_share",
    ),
    Case("compare", "compare a.leadline b.leadline --json"),
    Case("report", "report a.leadline --json"),
    Case("bounds", "bounds b.leadline --heads --json"),
    Case("bounds, depth", "bounds c.leadline --initial --json"),
    Case("paths", f"paths {_MODEL} --samples 2 --json"),
    Case("collapse", f"collapse {_MODEL} --bounds --json"),
    Case("anatomy", f"anatomy {_MODEL} --json"),
    Case("train", f"train {_TINY} {_TRAINING} --steps 4 --layers --json -o d.leadline"),
    Case("report, training", "report d.leadline --json"),
    Case("compare, training", "compare d.leadline d.leadline --names x,y --json"),
    Case("list", "list --json"),
    Case("explain, probe", "explain stream --json"),
    Case("explain, quantity", "explain stream.norm --json"),
    Case("explain, bound", "explain causal --json"),
    Case("explain, part", "explain deepnorm --json"),
    Case("explain, recipe", "explain gpt2 --json"),
    Case("explain, task", "explain copy --json"),
    Case("claims", "claims --json"),
    Case("claims show", "claims show power-of-nine-tenths --json"),
    Case("reproduce", "reproduce --list --json"),
    Case(
        "reproduce rank-collapse", "reproduce rank-collapse --depth 2 --width 8 --samples 1 --json"
    ),
    Case(
        "reproduce learning-identity",
        "reproduce learning-identity --blocks 2 --width 4 --steps 2 --seeds 1 --json",
    ),
    Case(
        "sweep",
        f"sweep placement=pre,post depth=1,2 --set width=8 --set heads=2 {_TRAINING} "
        "--steps 2 --seeds 2 --workers 1 --json -o e.leadline",
        slow=True,
    ),
    Case("sweep, dry run", "sweep depth=1,2 --set width=8 --steps 2 --dry-run --json", slow=True),
    Case("map", "map e.leadline --json", slow=True),
    Case("report, sweep", "report e.leadline --json", slow=True),
    Case("claims run", "claims run power-of-nine-tenths --seeds 1 --workers 1 --json", slow=True),
    Case("check", "check identity --json", slow=True),
    Case("bounds --attack", "bounds --attack --attacks 2 --optimised 1 --json", slow=True),
    Case(
        "reproduce attention-spectra",
        "reproduce attention-spectra recipe:default --sentences 2 --json",
        slow=True,
    ),
    Case(
        "reproduce ode-view", "reproduce ode-view --width 4 --tokens 2 --seeds 1 --json", slow=True
    ),
    Case(
        "reproduce depth-laws",
        "reproduce depth-laws --quick --depths 2,4 --seeds 2 --json",
        slow=True,
    ),
    Case(
        "reproduce gradient-flow",
        "reproduce gradient-flow --quick --depths 1,2 --seeds 1 --no-training --json",
        slow=True,
    ),
    Case(
        "reproduce layer-dropping",
        "reproduce layer-dropping --quick --depth 2 --steps 2 --seeds 1 --json",
        slow=True,
    ),
    Case(
        "reproduce fine-tuning",
        "reproduce fine-tuning --quick --base-steps 2 --steps 2 --seeds 1 --json",
        slow=True,
    ),
    Case("reproduce lipschitz-cost", "reproduce lipschitz-cost --json", slow=True),  # half a minute
    Case(
        "reproduce depth-limits",
        "reproduce depth-limits --quick --seeds 1 --budget 0.001s --json -o f.leadline",
        slow=True,
    ),
)
"""In this order: later ones read the records of earlier ones."""


# ---- names, imports and results ---------------------------------------------------------------


def public_names() -> Surface:
    """Describe every public name of `leadline`."""
    import leadline

    return {name: _describe(getattr(leadline, name)) for name in leadline.__all__}


def imported_names() -> Surface:
    """Describe what is imported from modules below `leadline`; what is missing is left out."""
    return {f"{module}:{name}": _describe(value) for module, name, value in _import_all()}


def _import_all() -> Iterator[tuple[str, str, Any]]:
    for module, names in IMPORTS.items():
        with contextlib.suppress(ModuleNotFoundError):
            loaded = importlib.import_module(module)
            for name in names:
                if hasattr(loaded, name):
                    yield module, name, getattr(loaded, name)


def results() -> Surface:
    """Describe what can be reached from the public names, by the shortest path of attributes.

    A class is described where it is reached first; elsewhere stands where that is.
    """
    import leadline

    roots = [(name, getattr(leadline, name)) for name in leadline.__all__]
    roots += [(f"{module}:{name}", value) for module, name, value in _import_all()]
    queue: deque[tuple[str, type]] = deque()
    for name, value in roots:
        if _is_own_class(value):
            queue.append((name, value))
        elif inspect.isfunction(value):
            returned = value.__annotations__.get("return")
            classes = _classes(returned, inspect.getmodule(value))
            queue += _numbered(f"{name}()", _views(name, classes) or classes)
    first: dict[type, str] = {}
    described: Surface = {}
    while queue:
        path, value = queue.popleft()
        if path in described:
            continue
        if value in first:
            described[path] = {"like": first[value]}
            continue
        first[value] = path
        described[path] = {}
        for name, member in sorted(_members(value).items()):
            described[path][name] = member.description
            suffix = f"{name}()" if "parameters" in member.description else name
            queue += _numbered(f"{path}.{suffix}", _classes(member.annotation, member.module))
    return described


def _views(name: str, classes: Sequence[type]) -> list[type]:
    """What a record hands the attributes of over: `jacobian().values` is `record.jacobian`'s."""
    from leadline import Record

    view = vars(Record).get(name.removesuffix("_weights"))  # collapse_weights is a collapse, too
    if Record not in classes or not isinstance(view, property):
        return []
    return _classes(view.fget.__annotations__["return"], sys.modules[Record.__module__])


def _numbered(path: str, classes: Sequence[type]) -> list[tuple[str, type]]:
    """A value that may be of several classes has a path for each."""
    return [(path if at == 0 else f"{path}#{at + 1}", one) for at, one in enumerate(classes)]


@dataclass(frozen=True)
class _Member:
    description: Surface
    annotation: Any
    module: ModuleType | None


def _members(owner: type) -> dict[str, _Member]:
    """The public members of a class that Leadline's own code gives it."""
    members: dict[str, _Member] = {}
    for base in owner.__mro__:
        if not _is_own_class(base):
            continue
        module = sys.modules[base.__module__]
        for name, value in vars(base).items():
            if _is_public(name) or name in SPECIAL:
                members.setdefault(name, _member(value, module))
        for name, annotation in vars(base).get("__annotations__", {}).items():
            if _is_public(name) and members.get(name, _NOTHING).annotation is None:
                members[name] = _Member({}, annotation, module)
        for name in _assigned(base):
            members.setdefault(name, _Member({}, None, module))
    return members


_NOTHING = _Member({}, None, None)


def _member(value: Any, module: ModuleType) -> _Member:
    if isinstance(value, property):
        returned = getattr(value.fget, "__annotations__", {}).get("return")
        return _Member({}, returned, module)
    if isinstance(value, functools.cached_property):
        return _Member({}, value.func.__annotations__.get("return"), module)
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not inspect.isfunction(plain):
        return _Member({}, None, module)
    parameters = _parameters(plain)
    if not isinstance(value, staticmethod):
        parameters = parameters[1:]
    return _Member({"parameters": parameters}, plain.__annotations__.get("return"), module)


def _assigned(owner: type) -> list[str]:
    """The public attributes that the class's own `__init__` sets."""
    init = vars(owner).get("__init__")
    try:
        tree = ast.parse(inspect.cleandoc(inspect.getsource(init)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):  # none, or one that a dataclass made
        return []
    return sorted(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and _is_public(node.attr)
    )


def _classes(annotation: Any, module: ModuleType | None) -> list[type]:
    """Leadline's own classes in an annotation, in the order in which they stand there."""
    if annotation is None or module is None:
        return []
    if isinstance(annotation, str):
        try:
            tree = ast.parse(annotation, mode="eval")
        except SyntaxError:  # a shape in words
            return []
        known = _visible(module)
        values = [known.get(n.id) for n in ast.walk(tree) if isinstance(n, ast.Name)]
    else:
        values = [annotation]
    return list(dict.fromkeys(one for value in values for one in _own_classes(value)))


def _own_classes(value: Any) -> Iterator[type]:
    if _is_own_class(value):
        yield value
    for inner in typing.get_args(value):
        yield from _own_classes(inner)


@functools.cache
def _visible(module: ModuleType) -> dict[str, Any]:
    """The names of a module, those that it imports for type checkers alone among them."""
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leadline"):
                with contextlib.suppress(ImportError):
                    source = importlib.import_module(node.module or "")
                    for alias in node.names:
                        known[alias.asname or alias.name] = getattr(source, alias.name, None)
    return known | vars(module)


def _describe(value: Any) -> Surface:
    if isinstance(value, type):
        described: Surface = {"kind": "class"}
        if issubclass(value, Exception):
            described["is"] = sorted(c.__name__ for c in value.__mro__[:-1])
        elif not getattr(value, "_is_protocol", False):
            described["parameters"] = _parameters(value)
        return described
    if callable(value):
        return {"kind": "function", "parameters": _parameters(value)}
    return {"kind": "value"}


def _parameters(value: Callable[..., Any]) -> list[Surface]:
    return [_parameter(one) for one in inspect.signature(value).parameters.values()]


def _parameter(parameter: inspect.Parameter) -> Surface:
    described: Surface = {"name": parameter.name, "kind": parameter.kind.name.lower()}
    if parameter.default is not parameter.empty:
        described["default"] = _shown(parameter.default)
    return described


def _shown(value: Any) -> str:
    """A value in words that neither an address nor a module changes."""
    if isinstance(value, type):
        return value.__qualname__
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return re.sub(r"\bleadline(\.\w+)+\.(?=\w)", "", text)


def _is_own_class(value: Any) -> bool:
    return isinstance(value, type) and value.__module__.partition(".")[0] == "leadline"


def _is_public(name: str) -> bool:
    return not name.startswith("_")


# ---- commands ---------------------------------------------------------------------------------


def commands() -> Surface:
    """Describe every command with its arguments, in their order, and its options."""
    import typer

    from leadline.cli.main import app

    described: Surface = {}

    def describe(path: str, command: Any) -> None:
        options: Surface = {}
        arguments: list[Surface] = []
        for one in command.params:
            if one.param_type_name == "argument":
                arguments.append({"nargs": one.nargs, "required": one.required, "type": _type(one)})
            elif not {"--install-completion", "--show-completion"} & set(one.opts):
                fact = {
                    "default": one.default
                    if isinstance(one.default, bool | int | float | str | None)
                    else _shown(one.default),
                    "flag": bool(one.is_flag),
                    "multiple": one.multiple,
                    "required": one.required,
                    "type": _type(one),
                }
                options |= {spelling: {**fact, "sets": True} for spelling in one.opts}
                options |= {spelling: {**fact, "sets": False} for spelling in one.secondary_opts}
        described[path] = {"arguments": arguments, "options": options}
        for name, member in getattr(command, "commands", {}).items():
            describe(f"{path} {name}", member)

    describe("leadline", typer.main.get_command(app))
    return described


def _type(parameter: Any) -> str | list[str]:
    """What may be given: the choices, or the name of a type. A path is typed as a text."""
    if hasattr(parameter, "type_descriptor"):
        kind = parameter.type_descriptor.annotation
        if typing.get_origin(kind) is list:
            (kind,) = typing.get_args(kind)
        if typing.get_origin(kind) is typing.Literal:
            return [str(choice) for choice in typing.get_args(kind)]
        name = kind.__name__
    else:  # typer before it had types of its own
        if choices := getattr(parameter.type, "choices", None):
            return [str(choice) for choice in choices]
        name = str(parameter.type.name).partition(" ")[0]
    words = {"bool": "boolean", "int": "integer", "str": "text", "Path": "text", "path": "text"}
    return words.get(name, name)


# ---- catalogs ---------------------------------------------------------------------------------


def catalogs() -> Surface:
    """Describe every catalog: its entries and their options, by its group of entry points."""
    import leadline
    from leadline.catalog import Catalog

    for module in pkgutil.walk_packages(leadline.__path__, "leadline."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    known = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "leadline"
        for value in vars(module).values()
        if isinstance(value, Catalog)
    }
    return {
        catalog.group or catalog.kind: {
            name: [_parameter(one) for one in catalog.options(name).values()] for name in catalog
        }
        for catalog in known.values()
    }


# ---- JSON -------------------------------------------------------------------------------------


def json_keys(cases: Iterable[Case] = CASES) -> Surface:
    """Run commands in an empty folder; return their keys with the types of the values."""
    described: Surface = {}
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)):
        for case in cases:
            types: dict[str, set[str]] = {}
            for path, kind in _leaves(_printed(case)):
                types.setdefault(path, set()).add(kind)
            described[case.name] = {path: " or ".join(sorted(k)) for path, k in types.items()}
    return described


def _printed(case: Case) -> Any:
    import shlex

    from leadline.cli.main import run

    printed, notes = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(notes):
        try:
            run(shlex.split(case.arguments))
        except SystemExit as left:
            code = left.code or 0
    if code != case.code:
        raise RuntimeError(
            f"`leadline {case.arguments}` left with {code}, not {case.code}: {notes.getvalue()}"
        )
    return json.loads(printed.getvalue())


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every path of keys with the type of what stands there; all items of a list are one."""
    if isinstance(value, dict):
        yield path or "/", "object"
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}/{key}")
    elif isinstance(value, list):
        yield path or "/", "list"
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    elif value is None:
        yield path, "null"
    elif isinstance(value, bool):
        yield path, "boolean"
    elif isinstance(value, int | float) or value in ("Infinity", "-Infinity"):
        yield path, "number"
    else:
        yield path, "string"


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# ---- comparing --------------------------------------------------------------------------------


def differences(old: Surface, new: Surface) -> dict[str, str]:
    """Return what `old` has and `new` lacks or has otherwise: from the place to a sentence.

    Parts that `new` does not have at all were not asked for.
    """
    missing: dict[str, str] = {}
    for part, compare in _COMPARE.items():
        if part in old and part in new:
            for place, sentence in compare(old[part], new[part]):
                missing[f"{part}: {place}"] = sentence
    return missing


Differences = Iterator[tuple[str, str]]


def _compare_names(old: Surface, new: Surface) -> Differences:
    for name, was in old.items():
        if name not in new:
            yield name, "is missing"
            continue
        now = new[name]
        if was["kind"] != now["kind"]:
            yield name, f"was a {was['kind']} and is a {now['kind']}"
        elif lost := set(was.get("is", ())) - set(now.get("is", ())):
            yield name, f"is no {', '.join(sorted(lost))} any more"
        elif "parameters" in was:
            yield from _compare_calls(name, was["parameters"], now.get("parameters", []))


def _compare_calls(name: str, old: list[Surface], new: list[Surface]) -> Differences:
    """Every call that was right must mean the same."""
    now = {one["name"]: one for one in new}
    for was in old:
        place = f"{name}({was['name']})"
        one = now.get(was["name"])
        if one is None:
            yield place, "the parameter is missing"
        elif one["kind"] != was["kind"] and (
            one["kind"] != "positional_or_keyword"
            or was["kind"] not in ("positional_only", "keyword_only")
        ):
            yield place, f"was {was['kind']} and is {one['kind']}"
        elif "default" in was and was["default"] != one.get("default"):
            yield place, f"the default was {was['default']} and is {one.get('default', 'gone')}"
    positional = ("positional_only", "positional_or_keyword")
    were = [one["name"] for one in old if one["kind"] in positional]
    are = [one["name"] for one in new if one["kind"] in positional]
    if set(were) <= set(are) and are[: len(were)] != were:
        yield name, f"the order of arguments was {', '.join(were)} and is {', '.join(are)}"
    known = {one["name"] for one in old}
    for one in new:
        if one["name"] not in known and "default" not in one and not one["kind"].startswith("var_"):
            yield f"{name}({one['name']})", "the parameter is new and has no default"


def _compare_results(old: Surface, new: Surface) -> Differences:
    for path, described in old.items():
        if path not in new:
            if not _told_before(path, old, new):
                yield path, "what is there cannot be reached any more"
            continue
        was, now = _followed(old, described), _followed(new, new[path])
        first = described.get("like")
        if isinstance(first, str) and first in new and _followed(new, new[first]) == now:
            continue  # compared where it is reached first
        for name, member in was.items():
            place = f"{path}.{name}"
            if name not in now:
                yield place, "is missing"
            elif ("parameters" in member) != ("parameters" in now[name]):
                yield place, "was a method or an attribute and is the other"
            elif "parameters" in member:
                yield from _compare_calls(place, member["parameters"], now[name]["parameters"])


def _told_before(path: str, old: Surface, new: Surface) -> bool:
    """Whether a path is missing because of what stands before it, which is a difference itself."""
    module, _, steps = path.rpartition(":")
    before, _, last = steps.rpartition(".")
    if not before:  # `imports` compares the names of modules
        return bool(module)
    before = f"{module}:{before}" if module else before
    name = last.partition("#")[0].removesuffix("()")
    return before in old and (before not in new or name not in _followed(new, new[before]))


def _followed(surface: Surface, described: Surface) -> Surface:
    return surface[described["like"]] if isinstance(described.get("like"), str) else described


def _compare_commands(old: Surface, new: Surface) -> Differences:
    for path, was in old.items():
        if path not in new:
            yield path, "the command is missing"
            continue
        now = new[path]
        for spelling, fact in was["options"].items():
            place = f"{path} {spelling}"
            if spelling not in now["options"]:
                yield place, "the option is missing"
                continue
            for key, value in fact.items():
                is_now = now["options"][spelling][key]
                if not _same_or_wider(value, is_now):
                    yield place, f"{key} was {value!r} and is {is_now!r}"
        arguments = now["arguments"]
        if not _same_or_wider(was["arguments"], arguments[: len(was["arguments"])]):
            yield path, f"the arguments were {was['arguments']} and are {arguments}"
        if any(one["required"] for one in arguments[len(was["arguments"]) :]):
            yield path, "there is a new argument that has to be given"
        for spelling, fact in now["options"].items():
            if fact["required"] and spelling not in was["options"]:
                yield f"{path} {spelling}", "the option is new and has to be given"


def _same_or_wider(old: Any, new: Any) -> bool:
    """Equal, or choices among which all earlier ones are."""
    if isinstance(old, list) and isinstance(new, list) and all(isinstance(c, str) for c in old):
        return set(old) <= set(new)
    return old == new


def _compare_catalogs(old: Surface, new: Surface) -> Differences:
    for group, entries in old.items():
        if group not in new:
            yield group, "the catalog is missing"
            continue
        for name, options in entries.items():
            if name not in new[group]:
                yield f"{group} {name}", "the entry is missing"
            else:
                # Options are given by name, so their order is nobody's concern.
                named = [{**one, "kind": "keyword_only"} for one in options]
                now = [{**one, "kind": "keyword_only"} for one in new[group][name]]
                yield from _compare_calls(f"{group} {name}", named, now)


def _compare_json(old: Surface, new: Surface) -> Differences:
    for case, keys in old.items():
        if case not in new:  # a case that was not run
            continue
        for path, types in keys.items():
            if path not in new[case]:
                yield f"{case} {path}", "the key is missing"
            elif set(new[case][path].split(" or ")) - set(types.split(" or ")):
                yield f"{case} {path}", f"was {types} and is {new[case][path]}"


_COMPARE: dict[str, Callable[[Surface, Surface], Differences]] = {
    "names": _compare_names,
    "imports": _compare_names,
    "results": _compare_results,
    "commands": _compare_commands,
    "catalogs": _compare_catalogs,
    "json": _compare_json,
}
PARTS: Mapping[str, Callable[[], Surface]] = {
    "names": public_names,
    "imports": imported_names,
    "results": results,
    "commands": commands,
    "catalogs": catalogs,
    "json": json_keys,
}


def surface(parts: Iterable[str] = tuple(PARTS)) -> Surface:
    """List some parts of the surface, or all."""
    return {part: PARTS[part]() for part in parts}


def as_text(listed: Surface) -> str:
    """Write a surface as JSON with a line for each entry."""
    parts: list[str] = []
    for part, entries in listed.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(entries[name], sort_keys=True)}"
            for name in sorted(entries)
        ]
        parts.append(f" {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}"


def main() -> None:
    """Print the surface, or what it lacks beside an earlier one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="which, such as names,commands")
    parser.add_argument("--against", type=Path, metavar="FILE", help="an earlier surface")
    asked = parser.parse_args()
    chosen = asked.parts.split(",")
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    listed = surface(chosen)
    if asked.against is None:
        print(as_text(listed))
        return
    missing = differences(json.loads(asked.against.read_text(encoding="utf-8")), listed)
    for place, sentence in missing.items():
        print(f"{place}: {sentence}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
