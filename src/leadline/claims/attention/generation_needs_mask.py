"""Because tokens are generated one by one, a mask is needed.

The note gives generation as the reason for the mask: when tokens come one by one, leaving it out
would change what is computed. The note writes attention for all tokens of a text at once, so the
claim is read there: the text so far goes through anew for every token, and without the mask earlier
tokens see later ones. The reach is generation as it is done: with the keys and values of earlier
tokens kept, each new token is one query over all keys that exist, and no mask is applied
(`parts.generation`: the pass of one new token runs with nothing hidden).
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS = 10


@claim(
    "generation-needs-mask",
    group="attention",
    notes=("deep-dive",),
    title="A mask is needed because text is generated token by token",
    formula="",
    plain="",
    says="GPT generates its output token by token when it predicts; therefore masking is needed.",
    correction="With the keys and values of earlier tokens kept, nothing has to be hidden token by "
    "token: later tokens do not exist yet. The mask is needed wherever several tokens go through at "
    "once: in training, in reading a prompt, or when the whole text so far is computed anew.",
    why="A text went through a model token by token, keys and values kept, each new token free to see "
    "every key there was, without any mask. The logits differ from those of one masked pass by "
    "{one_by_one_error}: rounding. Where the text so far was computed anew for every token, without a "
    "mask, they differ by {recomputed_difference}, because earlier tokens then see later ones. The "
    "same text in one pass without a mask gives logits that differ by {open_difference}.",
    checks=(
        Check(
            "recomputed_difference",
            "claim",
            "at least",
            1e-3,
            label="what leaving out the mask changes, the text so far computed anew",
            because="Logits are of size one; a thousandth of that is far above rounding.",
            log=True,
        ),
        Check(
            "one_by_one_error",
            "reach",
            "at least",
            1e-3,
            label="what leaving out the mask changes, keys and values kept",
            because="Logits here are of size one; if the mask were needed they would change by far "
            "more than rounding, 1e-15.",
            log=True,
        ),
        Check(
            "one_by_one_same",
            "correction",
            "at most",
            1e-12,
            label="token by token without a mask against one masked pass",
            because="An identity: the same sums in another order, float64, some hundred roundings.",
            log=True,
        ),
        Check(
            "open_difference",
            "correction",
            "at least",
            1e-3,
            label="one pass without a mask against one masked pass",
            because="Logits are of size one; a thousandth of that is far above rounding.",
            log=True,
        ),
    ),
    seconds=0.05,
)
def measure(seed: int) -> Measured:
    """One masked pass, one open pass, and token by token with an open model, in both ways."""
    import torch

    from leadline.models.inputs import random_tokens
    from leadline.parts import Transformer
    from leadline.parts.generation import Cache

    def built(causal: str) -> Transformer:
        return Transformer(
            depth=3,
            width=32,
            heads=4,
            vocabulary=50,
            context=TOKENS,
            init="xavier",
            attention=f"multihead(causal={causal})",
            seed=seed,
        ).double()

    masked, open_ = built("true"), built("false")
    ids = random_tokens(masked, examples=2, length=TOKENS, seed=seed).main
    with torch.no_grad():
        at_once = masked(ids)
        past = Cache(TOKENS)
        steps = [open_(ids[:, i : i + 1], cache=past) for i in range(TOKENS)]
        one_by_one = torch.cat(steps, 1)
        anew = torch.cat([open_(ids[:, : i + 1])[:, -1:] for i in range(TOKENS)], 1)
        unmasked = open_(ids)
    error = float((one_by_one - at_once).abs().max())
    return Measured(
        {
            "recomputed_difference": float((anew - at_once).abs().max()),
            "one_by_one_error": error,
            "one_by_one_same": error,
            "open_difference": float((unmasked - at_once).abs().max()),
        }
    )
