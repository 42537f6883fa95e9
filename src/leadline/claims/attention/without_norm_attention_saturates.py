"""Without a norm the norm of attention may soar towards sqrt(n) with depth.

"May" asks for a case. Claim: a stack with skips, without norms, drawn as Xavier draws, where the
stream grows from layer to layer and the logits with it; soaring is read as a growth by half and more
than half of sqrt(n). Reach: that it always does so. Drawn as GPT-2 draws, the stream does not grow
and nothing happens. The logits of the first and the last layer are also computed by hand, from the
weights and the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.attention._started import DEPTH, HEADS, STARTED, TOKENS, WIDTH
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

EXAMPLES, VOCABULARY = 4, 100
"""As in the trial."""


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
    "{growth_xavier:.2f} and ends at {share_of_root:.2f} of √n: the logits of a head span {span_first:.0f} in the "
    "first layer and {span_last} in the last, where the largest weight of a query is "
    "{top_weight:.2f} in the mean: every query looks at one key. Drawn as GPT-2 draws, it grows by {growth_gpt2:.4f}. With "
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
        Check(
            "span_ratio", "correction", "near", 1.0, within=1e-4,
            label="measured span of the logits over that by hand, first layer",
            because="The same number in another order of sums, float32 on logits of size ten.",
        ),
        Check(
            "top_weight", "correction", "at least", 0.95,
            label="largest weight of a query, last layer, no norm, Xavier",
            because="One key: at most a twentieth is left to all others.", over="mean",
        ),
    ),
    seconds=0.01,
    needs=(STARTED,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Norms of the first and of the last layer."""
    cells = trials[STARTED.name]
    by_hand = _by_hand(seed)
    norms = {name: cells[name]["spectral_norm"] for name in cells}

    def growth(name: str) -> float:
        return norms[name][-1] / norms[name][0]

    layers = tuple(float(layer) for layer in range(1, DEPTH + 1))
    return Measured(
        {
            "growth_xavier": growth("none-xavier"),
            "share_of_root": norms["none-xavier"][-1] / TOKENS**0.5,
            "span_first": by_hand[0][0],
            "span_last": by_hand[-1][0],
            "span_ratio": cells["none-xavier"]["logit_span"][0] / by_hand[0][0],
            "top_weight": by_hand[-1][1],
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


def _by_hand(seed: int) -> list[tuple[float, float]]:
    """Of the first and the last layer of the trial's model: mean span of a head, mean top weight."""
    import torch

    from leadline.models.inputs import random_tokens
    from leadline.parts import Transformer

    model: Any = Transformer(
        depth=DEPTH,
        width=WIDTH,
        heads=HEADS,
        vocabulary=VOCABULARY,
        context=TOKENS,
        placement="none",
        norm="none",
        init="xavier",
        seed=seed,
    )
    seen: list[tuple[float, float]] = []
    hidden = torch.ones(TOKENS, TOKENS).triu(1).bool()

    def look(branch: Any, given: tuple[Any, ...]) -> None:
        projected = branch.qkv(given[0]).double().unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key = projected.permute(2, 0, 3, 1, 4)[:2]
        logits = query @ key.mT / (WIDTH // HEADS) ** 0.5
        top = logits.masked_fill(hidden, -torch.inf)
        least = logits.masked_fill(hidden, torch.inf)
        span = (top.amax(-1) - least.amin(-1)).amax(-1)
        seen.append((float(span.mean()), float(top.softmax(-1).amax(-1).mean())))

    ids = random_tokens(model, examples=EXAMPLES, length=TOKENS, seed=seed).main
    hooks = [
        model.blocks[layer].attention.branch.register_forward_pre_hook(look) for layer in (0, -1)
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    return seen
