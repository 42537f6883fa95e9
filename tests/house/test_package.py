"""The package that is built holds all it needs, and runs where nothing else of it is installed.

The environment of the tests lends its libraries by a line in a .pth file, so that nothing is
downloaded. What such a folder's own .pth files say is not read, so an editable install of Leadline
does not come with them.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import leadline

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leadline"
BARE = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""The environment variables without those that could lead to this repository."""
pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the source distribution and of the wheel that is built from it."""
    tree = tmp_path_factory.mktemp("tree")
    # A copy, so that building leaves nothing in the repository, and nothing there leaks in.
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=left_out)
    run(sys.executable, "-m", "build", "--no-isolation", cwd=tree)
    return tree / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def place(wheel, tmp_path_factory):
    """An environment with the wheel in it, and the libraries of this one beside it."""
    folder = tmp_path_factory.mktemp("place") / "venv"
    venv.create(folder, symlinks=True)
    # The libraries come after the wheel: pip would take the Leadline among them for installed.
    installing = ("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
    run(*pip, *installing, env=BARE)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "libraries_of_the_tests.pth").write_text("\n".join(sorted(libraries)) + "\n")
    return folder


def test_the_wheel_holds_every_file_of_the_source(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [file for file in SOURCE.rglob("*") if file.is_file()]
    wanted = {
        file.relative_to(SOURCE.parent).as_posix()
        for file in files
        if "__pycache__" not in file.parts
    }
    assert {Path(name).suffix for name in wanted} >= {".py", ".css", ".js", ".safetensors"}
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_the_page_of_the_package_links_to_nothing_that_it_lacks(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
    about = email.message_from_bytes(archive.read(name))
    assert about["Version"] == leadline.__version__
    assert about["Description-Content-Type"] == "text/markdown"
    urls = dict(text.split(", ") for text in about.get_all("Project-URL"))
    assert {"Repository", "Documentation", "Changelog", "Issues"} == set(urls)
    text = archive.read(name).decode()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    assert all(link.startswith("https://") for link in links)
    assert "/HEAD/docs/images/report.png)" in text


def test_the_package_passes_the_check_of_the_index(built):
    files = sorted(str(file) for file in built.iterdir())
    assert len(files) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *files)


def test_the_wheel_alone_is_what_runs(place, tmp_path):
    script = "import leadline, sys; print(leadline.__file__, leadline.__version__)"
    file, version = run(place / "bin" / "python", "-c", script, env=BARE, cwd=tmp_path).split()
    assert Path(file).is_relative_to(place)
    assert version == leadline.__version__


def test_the_installed_command_measures_the_pair_and_writes_a_page(place, tmp_path):
    command = [place / "bin" / "leadline", "measure", "leadline.lab.pair:pre"]
    command += ["--text", "The sea is deep.", "-o", "pre.leadline", "--html", "pre.html", "--json"]
    told = json.loads(run(*command, env=BARE, cwd=tmp_path))
    assert told["model"]["recipe"]["depth"] == 6
    assert "</html>" in (tmp_path / "pre.html").read_text(encoding="utf-8")
    with leadline.Record.open(tmp_path / "pre.leadline") as record:
        assert record.depth() == 6
        assert record["stream.norm"].values.size > 0


def test_the_installed_command_reads_the_ledger_of_the_claims(place, tmp_path):
    command = [place / "bin" / "leadline", "claims", "--json"]
    told = json.loads(run(*command, env=BARE, cwd=tmp_path))
    assert {"eigenvalues-decide-decay"} <= {claim["id"] for claim in told["claims"]}
    assert told["measured"]["seeds"]
