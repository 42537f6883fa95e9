"""Without a norm the norm of attention may soar towards sqrt(n) with depth.

"May" asks for a case. Claim: a stack with skips, without norms, drawn as Xavier draws, where the
stream grows from layer to layer and the logits with it; soaring is read as a growth by half and more
than half of sqrt(n). Reach: that it always does so. Drawn as GPT-2 draws, the stream does not grow
and nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check, Picture
from leadline.claims._entry import Measured, claim
from leadline.claims.attention._started import DEPTH, STARTED, TOKENS


@claim(
    "without-norm-attention-saturates",
    group="attention",
    notes=("deep-dive",),
    title="Without norms the norm of attention can soar towards √n with depth",
    formula=r"\|A_l\|_2 \rightarrow \sqrt{n}",
    plain="no norm: ‖A_l‖ → √n",
    says="Without such normalisation the spectral norm of attention may soar towards √n with depth.",
    correction="It does so where the stream grows, as with Xavier's draw. With GPT-2's small draw the "
    "stream and the logits stay small, and the norm stays that of equal logits.",
    why="In 24 layers with skips and without norms, drawn as Xavier draws, the norm grows by "
    "{growth_xavier:.2f} and ends at {share_of_root:.2f} of √n: the logits span {span_last:.0f} at the "
    "end, so every query looks at one key. Drawn as GPT-2 draws, it grows by {growth_gpt2:.4f}. With "
    "pre-norm and Xavier's draw it grows by {growth_pre:.2f}.",
    checks=(
        Check(
            "growth_xavier", "claim", "at least", 1.5,
            label="growth of the norm over 24 layers, no norm, Xavier",
            because="Soaring is read as growing by half at least; draws move it by about a tenth.",
            over="mean",
        ),
        Check(
            "share_of_root", "claim", "at least", 0.5,
            label="norm of the last layer over √n, no norm, Xavier",
            because="Towards √n is read as past half of it.", over="mean",
        ),
        Check(
            "growth_gpt2", "reach", "at least", 1.5,
            label="growth of the norm over 24 layers, no norm, GPT-2's draw",
            because="The same growth by half.", over="mean",
        ),
        Check(
            "growth_gpt2_small", "correction", "near", 1.0, within=0.01,
            label="that growth, which should be none",
            because="Logits that span 1e-4 move the norm by less than 1e-4.",
        ),
        Check(
            "growth_pre", "correction", "at most", 1.5,
            label="growth of the norm over 24 layers, pre-norm, Xavier",
            because="Less than what was called soaring.", over="mean",
        ),
    ),
    seconds=0.01,
    needs=(STARTED,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Norms of the first and of the last layer."""
    cells = trials[STARTED.name]
    norms = {name: cells[name]["spectral_norm"] for name in cells}

    def growth(name: str) -> float:
        return norms[name][-1] / norms[name][0]

    layers = tuple(float(layer) for layer in range(1, DEPTH + 1))
    return Measured(
        {
            "growth_xavier": growth("none-xavier"),
            "share_of_root": norms["none-xavier"][-1] / TOKENS**0.5,
            "span_last": cells["none-xavier"]["logit_span"][-1],
            "growth_gpt2": growth("none-gpt2"),
            "growth_gpt2_small": growth("none-gpt2"),
            "growth_pre": growth("pre-xavier"),
        },
        Picture(
            "layer",
            "mean spectral norm",
            {
                "no norm, Xavier": (layers, tuple(norms["none-xavier"])),
                "no norm, GPT-2's draw": (layers, tuple(norms["none-gpt2"])),
                "pre-norm, Xavier": (layers, tuple(norms["pre-xavier"])),
                "square root of n": (layers, (TOKENS**0.5,) * DEPTH),
            },
            faint=("square root of n",),
        ),
    )
