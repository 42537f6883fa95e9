"""Figure 7: the attention norms of GPT2-large rise, stay at 2.0 to 2.1 and fall at the end."""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "gpt2-large-plateau",
    group="attention",
    notes=("deep-dive",),
    title="In GPT2-large the attention norms settle between 2.0 and 2.1",
    says="In the 36 layers of GPT2-large the mean norm rises over the first ten layers, stays between "
    "2.0 and 2.1 from layer 20 to 32 and falls to about 1.5 in the last two. The curve is that of the model of 12 "
    "layers, scaled up and stretched over the layers, with a slightly higher plateau.",
    why="It needs the released weights, which do not come with Leadline. With them, leadline reproduce "
    "attention-spectra measures the same curve without padding, which changes the level of all of "
    "these numbers.",
)
