"""What all tests share.

Property tests draw the same examples in every run, so that a failure is the fault of the change
at hand. `HYPOTHESIS_PROFILE=explore` draws new ones, and many more.
"""

import os

from hypothesis import settings

# Commands fit what they print to this width; a shell may have exported its own.
os.environ.pop("COLUMNS", None)

settings.register_profile("house", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))
