"""The papers of the project agree with it: changelog, citation, README, contributing, results."""

import importlib.util
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import leadline

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Repository"]


def load_setup():
    spec = importlib.util.spec_from_file_location("leadline_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_changelog_has_a_section_of_this_version_and_its_link():
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## \[([^\]]+)\] - (\S+)$", text, re.MULTILINE)
    assert sections[0][0] == leadline.__version__
    for version, date in sections:
        assert date == "unreleased" or re.fullmatch(r"\d{4}-\d{2}-\d{2}", date)
        assert f"\n[{version}]: {REPOSITORY}/" in text
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds


def test_the_citation_is_of_this_version_and_says_what_the_package_says():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == leadline.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["abstract"] == PROJECT["description"]
    assert [one["name"] for one in citation["authors"]] == [a["name"] for a in PROJECT["authors"]]


def test_the_repository_has_one_address():
    owner = REPOSITORY.removeprefix("https://github.com/")
    assert re.fullmatch(r"[\w-]+/[\w-]+", owner)
    assert all(url.startswith(REPOSITORY) for url in PROJECT["urls"].values())
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["repository-code"] == REPOSITORY
    for page in ROOT.glob("*.md"):
        for address in re.findall(r"https://github\.com/[\w-]+/leadline\b", page.read_text()):
            assert address == REPOSITORY, page.name


def test_links_of_the_readme_become_absolute_and_lead_to_files():
    absolute = load_setup().with_absolute_links
    text = absolute((ROOT / "README.md").read_text(), REPOSITORY)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures and links
    raw = REPOSITORY.replace("//github.com/", "//raw.githubusercontent.com/") + "/HEAD/"
    for address in pictures:
        assert address.startswith(raw)
        assert (ROOT / address.removeprefix(raw)).is_file()
    for address in links:
        assert address.startswith("https://")
        if address.startswith(f"{REPOSITORY}/blob/HEAD/"):
            place = address.removeprefix(f"{REPOSITORY}/blob/HEAD/").partition("#")[0]
            assert (ROOT / place).exists(), place


def test_absolute_links_and_anchors_are_left_alone():
    absolute = load_setup().with_absolute_links
    for text in ("[a](https://example.org/b)", "[a](#b)", "![a](data:b)", "a [b] (c)"):
        assert absolute(text, "https://github.com/o/r") == text
    assert absolute("[a](b/c.md#d)", "https://github.com/o/r") == (
        "[a](https://github.com/o/r/blob/HEAD/b/c.md#d)"
    )
    assert absolute("![a](b.svg)", "https://github.com/o/r") == (
        "![a](https://raw.githubusercontent.com/o/r/HEAD/b.svg)"
    )


def test_contributing_names_catalogs_that_exist():
    source = "\n".join(p.read_text() for p in (ROOT / "src" / "leadline").rglob("*.py"))
    catalogs = set(re.findall(r"^([A-Z_]+): Catalog\[.*\] = \w*Catalog\(", source, re.MULTILINE))
    named = set(re.findall(r"@([A-Z_]+)\.register\(", (ROOT / "CONTRIBUTING.md").read_text()))
    # Embeddings and heads are few; claims enter by their texts, rules, alarms, checks and faults by
    # decorators that take what their pages say.
    by_decorator = {"RULES", "ALARMS", "CHECKS", "FAULTS", "FRESH_FAULTS"}
    assert named == catalogs - {"EMBEDDINGS", "HEADS", "CLAIMS"} - by_decorator


def test_contributing_names_targets_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\bmake ([a-z-]+)", text))
    makefile = (ROOT / "Makefile").read_text()
    assert len(named) > 5
    assert named <= set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())


def test_the_commits_of_the_papers_exist():
    done = subprocess.run(
        ["git", "rev-list", "--abbrev-commit", "--abbrev=7", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    shallow = (ROOT / ".git" / "shallow").exists()
    if done.returncode != 0 or shallow:
        pytest.skip("the history is not here")
    history = {line[:7] for line in done.stdout.split()}
    for page in ("CHANGELOG.md", "docs/negative-results.md"):
        hashes = set(re.findall(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7}\b", (ROOT / page).read_text()))
        assert len(hashes) > 10
        assert hashes <= history, page


def test_every_missed_aim_of_the_scores_is_among_the_negative_results():
    rows = json.loads((ROOT / "benchmarks" / "scores" / "results.json").read_text())["results"]
    missed = [
        f"| {row['file']}: {row['name']} | {row['compared']} | {row['ratio']:.3g} | "
        f"{'at least' if row.get('at_least') else 'at most'} {row['target']:.3g} |"
        for row in rows
        if row["met"] is False
    ]
    page = (ROOT / "docs" / "negative-results.md").read_text()
    table = page.partition("## Aims that were missed")[2].splitlines()
    assert [line for line in table if line.startswith("| ")][1:] == missed
