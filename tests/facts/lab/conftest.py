import pytest

from leadline.lab.cell import run_cell
from leadline.lab.engines import ENGINES, Engine, News
from leadline.lab.grid import Grid, Sweep, parse_axes


class HereEngine(Engine):
    """Runs the cells in this process, one after the other; `stop` raises after so many."""

    ran = []  # noqa: RUF012
    stop = None
    orders = None

    def run(self, jobs, orders):
        type(self).orders = orders
        for job in jobs:
            if orders.over:
                return
            if self.stop is not None and len(self.ran) >= self.stop:
                raise KeyboardInterrupt
            yield News(job.cell.run)
            type(self).ran.append(job.cell.run)
            yield run_cell(job.cell, folder=job.folder)


@pytest.fixture
def here(monkeypatch):
    """An engine called `here`, without processes."""
    engine = type("Here", (HereEngine,), {"ran": []})
    monkeypatch.setitem(ENGINES._entries, "here", engine)
    return engine


TINY = {
    "width": 16,
    "heads": 2,
    "task": "copy(items=4)",
    "steps": 6,
    "batch": 4,
    "examples": 4,
    "log": 2,
    "validate": 3,
    "gauges": 3,
}


@pytest.fixture
def tiny():
    """A sweep of tiny cells: the axes, and what is changed."""

    def build(*axes, seeds=(0,), **changes):
        return Sweep(
            name="tiny",
            grids=(Grid(parse_axes(axes or ["depth=1,2"])),),
            seeds=seeds,
            fixed={**TINY, **changes},
        )

    return build
