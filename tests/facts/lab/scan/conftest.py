import shutil

import pytest

from leadline.lab.engines import ENGINES
from leadline.lab.scan.scan import scan
from tests.scanned import HereEngine, train_run

STEPS = (100, 200, 300, 1000)


@pytest.fixture(scope="session")
def run_once(tmp_path_factory):
    """A training run with four checkpoints, made once; nobody writes to it."""
    steps = [step // 100 for step in STEPS]
    folder = train_run(tmp_path_factory.mktemp("run"), steps)
    for step in STEPS:
        place = folder / f"checkpoint-{step}"
        (folder / f"checkpoint-{step // 100}").rename(place)
        (place / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
    return folder


@pytest.fixture(scope="session")
def scanned_once(run_once, tmp_path_factory):
    """The record of a scan of this run, made once."""
    path = tmp_path_factory.mktemp("scan") / "s.leadline"
    ENGINES.names()  # so that the catalog is loaded before an entry is added
    patch = pytest.MonkeyPatch()
    with patch.context() as within:
        within.setitem(ENGINES._entries, "here", type("Here", (HereEngine,), {"ran": []}))
        scan(run_once, path, engine="here").close()
    return path


@pytest.fixture
def run_folder(run_once, tmp_path):
    """A copy of the run, to write to; times of change are kept."""
    return shutil.copytree(run_once, tmp_path / "run")


@pytest.fixture
def here(monkeypatch):
    """An engine called `here`, without processes."""
    engine = type("Here", (HereEngine,), {"ran": []})
    ENGINES.names()
    monkeypatch.setitem(ENGINES._entries, "here", engine)
    return engine
