"""What all tests share.

Property tests draw the same examples in every run, so that a failure is the fault of the change
at hand. `HYPOTHESIS_PROFILE=explore` draws new ones, and many more.
"""

import os

from hypothesis import settings

from leadline.numerics.half_precision import prepare_half_products

# Many tests multiply in bfloat16 by torch alone, and the first product settles the instructions.
prepare_half_products()

settings.register_profile("house", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))
