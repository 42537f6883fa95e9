"""The pages are true: the generated ones fresh, the links alive, the code in them runs."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
WITH_SCRIPTS = [
    "README.md",
    "docs/attention.md",
    "docs/collapse.md",
    "docs/diagnosis.md",
    "docs/first-measurement.md",
    "docs/gradient-flow.md",
    "docs/jacobians.md",
    "docs/lab.md",
    "docs/map.md",
    "docs/paths.md",
    "docs/scan.md",
    "docs/transformer.md",
    "docs/watch.md",
]
"""The pages whose Python is run."""
TRAINING_PAGES = ("docs/lab.md", "docs/map.md")


def load_generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize(
    "page",
    [
        # These build some three hundred models each.
        pytest.param(page, marks=[pytest.mark.slow] if page in ("survey.md", "models.md") else [])
        for page in sorted(GENERATOR.PAGES)
    ],
)
def test_a_generated_page_is_fresh(page):
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == GENERATOR.PAGES[page](), f"docs/{page} is stale: run make docs"


@pytest.mark.parametrize("folder", sorted(GENERATOR.FOLDERS))
def test_a_generated_folder_is_fresh_and_holds_nothing_else(folder):
    assert not GENERATOR.stale_files(folder), f"docs/{folder} is stale: run make docs"


def test_every_file_that_the_architecture_names_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page)
    assert len(named) > 30
    rooms = (ROOT / "src" / "leadline", ROOT)
    assert not [name for name in named if not any((room / name).exists() for room in rooms)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_to_a_file_of_the_project_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    links += re.findall(r'(?:src|href)="([^"#]+)"', text)
    for link in links:
        if not re.match(r"[a-z]+:", link):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize(
    "page",
    [
        # These train models.
        pytest.param(page, marks=[pytest.mark.slow] if page in TRAINING_PAGES else [])
        for page in WITH_SCRIPTS
    ],
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    assert blocks
    names = {"__name__": "__main__"}  # so that what stands under the guard of a script runs too
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def calls_unguarded(block, name):
    """The calls of a function that are made when the block is imported by another name."""
    found = []
    for part in ast.parse(block).body:
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            continue
        if isinstance(part, ast.If) and "__name__" in ast.unparse(part.test):
            continue
        calls = [node for node in ast.walk(part) if isinstance(node, ast.Call)]
        found += [call for call in calls if ast.unparse(call.func).split(".")[-1] == name]
    return found


@pytest.mark.parametrize("page", WITH_SCRIPTS)
def test_a_page_that_shows_a_sweep_guards_it(page):
    # Workers of a sweep are started anew and import the script: unguarded, it would start again.
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S
    ):
        for name in ("sweep", "scan"):
            assert not calls_unguarded(block, name), f"{page} shows a {name} without a guard"


def test_a_guard_is_told_from_a_bare_call():
    assert calls_unguarded('ll.sweep(what, "a")', "sweep")
    assert calls_unguarded('with ll.sweep(what, "a") as record:\n    pass', "sweep")
    assert not calls_unguarded('if __name__ == "__main__":\n    ll.sweep(what, "a")', "sweep")


def test_the_screen_that_the_page_shows_is_what_a_newcomer_sees(monkeypatch, capsys):
    from leadline.cli.main import run

    page = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0].strip()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    command = ["leadline", "diagnose", "examples/sick_model.py:build", "--random", "2x32"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit):
        run()

    def without_miss(text):  # how many eps it misses by is the machine's
        return re.sub(r"in eps: [\d.e+]+", "in eps: N", text)

    assert "in eps: N" in without_miss(shown)
    assert without_miss(capsys.readouterr().out).startswith(without_miss(shown))
