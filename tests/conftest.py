"""What all tests share.

Property tests draw the same examples in every run, so that a failure is the fault of the change
at hand. `HYPOTHESIS_PROFILE=explore` draws new ones, and many more. Neither profile looks at the
clock: a slow machine is no fault of a change.
"""

import gc
import os
import signal
import subprocess

import pytest
from hypothesis import HealthCheck, settings

from leadline.errors import MachineError
from leadline.numerics.half_precision import prepare_half_products
from tests.processes import children, end

# Commands fit what they print to this width; a shell may have exported its own. Readline, which
# pytest imports, sets it where os.environ does not see it and child processes do.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

CLOCKLESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("house", **CLOCKLESS, derandomize=True)
settings.register_profile("explore", **CLOCKLESS, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


def pytest_configure():
    """Settle the instructions of half-precision products, or say why no test can run.

    Many tests multiply in bfloat16 by torch alone, and the first product settles them.
    """
    try:
        prepare_half_products()
    except MachineError as refusal:
        raise pytest.UsageError(str(refusal)) from None


def pytest_collection_finish():
    """Leave the tests themselves to no garbage collector, which would walk through all of them.

    Fifteen thousand tests and what they import are millions of objects. Every full collection visits
    them, and trainers ask for one at each start.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_process_is_left():
    """Fail a test that leaves a process, which would disturb another test later.

    What fixtures of a module or of the session have started stands before the test begins, and
    may stay.
    """
    before = children()
    yield
    leftovers = [one for one in children() if one not in before]
    for process in leftovers:
        process.kill()
        process.wait()
    assert not leftovers, f"the test left {len(leftovers)} of its processes behind: {leftovers}"


@pytest.fixture
def start():
    """Start a process as `subprocess.Popen` does; it ends with the test, however that ends.

    It can be interrupted even if the tests cannot: what a shell starts in the background, and
    whatever that starts, is deaf to SIGINT.
    """
    processes = []

    def begin(*arguments, **options):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            processes.append(subprocess.Popen(*arguments, **options))
        finally:
            signal.signal(signal.SIGINT, before)
        return processes[-1]

    yield begin
    for process in processes:
        end(process)
