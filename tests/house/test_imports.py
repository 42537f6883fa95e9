"""Who may import whom, and what an import costs."""

import ast
import json
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leadline"
READING_ROOM = ("catalog.py", "choice.py", "errors", "record", "theory", "reading")
INSTRUMENT_LIBRARIES = {"torch", "transformers", "safetensors", "tokenizers", "gguf"}
INSIDE_FUNCTIONS_ONLY = {
    "gguf",
    "pandas",
    "peft",
    "plotly",
    "pyarrow",
    "ray",
    "safetensors",
    "tokenizers",
    "transformers",
    "xarray",
}


def modules_of(*parts):
    """Return the dotted names of all modules in files or folders of the package."""
    names = []
    for part in parts:
        path = SOURCE / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            dotted = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)
            names.append(dotted.removesuffix(".__init__"))
    return names


def loaded_after(*lines):
    """Run lines in a new interpreter and return the top names of all modules it then has."""
    script = "\n".join([*lines, "import json, sys", "print(json.dumps(sorted(sys.modules)))"])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_the_import_contracts_hold():
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_has_its_place_in_the_contracts():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [line for contract in settings["contracts"] for line in contract.get("layers", [])]
    placed = {
        name.strip().removeprefix("leadline.").partition(".")[0]
        for line in layers
        for name in line.split("|")
    }
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert len(rooms) > 10
    assert rooms <= placed


def test_only_two_modules_stand_outside_of_the_rooms():
    assert {path.stem for path in SOURCE.glob("*.py")} == {
        "__init__",
        "catalog",
        "choice",
        "__main__",
    }


def test_no_module_imports_a_private_module_of_another_folder():
    strangers = [
        f"{module} imports {imported}"
        for module, imports in imports_by_module().items()
        for imported in imports
        if imported.rpartition(".")[2].startswith("_")
        and not module.startswith(imported.rpartition(".")[0])
    ]
    assert not strangers


def test_no_module_imports_itself_through_others():
    imports = imports_by_module()
    order = TopologicalSorter(imports)
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def imports_by_module():
    """Every module of the package with those that it imports anywhere, but for types."""
    graph = grimp.build_graph("leadline", exclude_type_checking_imports=True, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_import_leadline_loads_neither_torch_nor_transformers():
    assert not loaded_after("import leadline") & (INSTRUMENT_LIBRARIES | {"numpy", "rich", "typer"})


def test_import_leadline_loads_one_file_and_no_library():
    script = "import json, sys; before = set(sys.modules); import leadline;"
    script += "print(json.dumps(sorted(set(sys.modules) - before)))"
    names = json.loads(subprocess.check_output([sys.executable, "-c", script], text=True))
    assert [name for name in names if name.startswith("leadline")] == ["leadline"]
    libraries = {name.partition(".")[0] for name in names} - {"leadline"}
    assert libraries <= set(sys.stdlib_module_names)
    # The seconds are in benchmarks/bench_start.py.


def test_the_reading_room_never_loads_torch():
    names = modules_of(*READING_ROOM)
    assert len(names) > 10
    loaded = loaded_after(f"import {', '.join(names)}")
    assert not loaded & INSTRUMENT_LIBRARIES


@pytest.mark.parametrize("command", ["measure", "reproduce", "reproduce gradient-flow"])
def test_the_help_of_the_command_line_never_loads_torch(command):
    loaded = loaded_after(
        "from leadline.cli.main import run",
        f"try: run({[*command.split(), '--help']})",
        "except SystemExit: pass",
    )
    assert not loaded & (INSTRUMENT_LIBRARIES | {"numpy"})


def test_optional_libraries_are_imported_inside_functions():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    early = []
    for file in files:
        for node in statements_at_import_time(ast.parse(file.read_text(encoding="utf-8")).body):
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            else:
                continue
            if names & INSIDE_FUNCTIONS_ONLY:
                early.append(f"{file}:{node.lineno}")
    assert not early


def statements_at_import_time(body):
    """Yield the statements that run when a module is imported: not those inside functions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from statements_at_import_time(node.orelse)
            continue
        yield node
        for part in ("body", "orelse", "finalbody", "handlers"):
            yield from statements_at_import_time(getattr(node, part, []))


UNUSED = ("transformers", "torch._dynamo", "sympy")
"""What takes seconds to import, and no model of plain torch needs."""


@pytest.mark.parametrize(
    "arguments",
    [
        ["measure", "--recipe", "default", "--random", "1x8"],
        ["diagnose", "examples/sick_model.py:build", "--random", "2x8"],
    ],
    ids=["measure", "diagnose"],
)
def test_a_model_of_plain_torch_is_measured_without_what_it_does_not_need(arguments):
    script = "\n".join(
        [
            "import sys",
            "from leadline.cli.main import run",
            "try:",
            f"    run({arguments!r})",
            "except SystemExit as end:",
            f"    print(end.code, [name for name in {UNUSED!r} if name in sys.modules])",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_rule_is_explained_without_torch():
    lines = ["from leadline.cli.main import run", "try: run(['explain', 'R01'])"]
    assert "torch" not in loaded_after(*lines, "except SystemExit: pass")
