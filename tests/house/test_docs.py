"""The pages are true: the generated ones fresh, the links alive, the code in them runs."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def load_generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize("page", sorted(GENERATOR.PAGES))
def test_a_generated_page_is_fresh(page):
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == GENERATOR.PAGES[page](), f"docs/{page} is stale: run make docs"


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
        "README.md",
        "docs/attention.md",
        "docs/collapse.md",
        "docs/first-measurement.md",
        "docs/lab.md",
        "docs/map.md",
        "docs/paths.md",
        "docs/transformer.md",
    ],
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    assert blocks
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
