"""The block as two notes draw it: x' = x + MHA(LN x), output = x' + FF(LN x').

"claim": a block of GPT-2 as Hugging Face has it, what goes into and comes out of every module seen
by hooks, in float64; and a block of Leadline's own. "reach": the drawing as a whole model, blocks
and nothing else: GPT-2 norms the stream once more after the last block.
"""

from __future__ import annotations

from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

LENGTH = 12


@claim(
    "block-diagram",
    group="norms",
    notes=("textbook", "card"),
    title="A block is x' = x + MHA(LN(x)), then x' + FF(LN(x'))",
    formula=r"x' = x + MHA(LN(x)), \quad y = x' + FF(LN(x'))",
    plain="x' = x + MHA(LN(x)), y = x' + FF(LN(x'))",
    says="A Transformer block norms its input, applies attention and adds the input back, then "
    "norms the result, applies the feed-forward network and adds again.",
    correction="That is the block of GPT-2. A whole model has one more LayerNorm after the last "
    "block, which the drawings leave out.",
    why="What enters and leaves every module of a GPT-2 block was recorded and the drawing "
    "computed from it: it gives the block's output, the relative error is {block_error}. A block "
    "of Leadline's own Pre-LN model agrees too ({own_error}). But blocks alone are no model: "
    "without the final LayerNorm the last stream differs from GPT-2's output by "
    "{final_change:.2f} of it. In Pre-LN the stream grows with depth, and this norm brings it to "
    "size.",
    checks=(
        Check(
            "block_error", "claim", "at most", 1e-12,
            label="drawing against the block of GPT-2, relative",
            because="The same sums in float64, to rounding.",
            log=True,
        ),
        Check(
            "own_error", "claim", "at most", 1e-12,
            label="drawing against a Pre-LN block of Leadline, relative",
            because="The same sums in float64, to rounding.",
            log=True,
        ),
        Check(
            "final_change", "reach", "at most", 0.01,
            label="last block's output against GPT-2's output, relative",
            because="If blocks were all, nothing would change; one in a hundred is noticed.",
        ),
        Check(
            "final_error", "correction", "at most", 1e-12,
            label="final LayerNorm of the last block's output against GPT-2's output",
            because="The same sums in float64, to rounding.",
            log=True,
        ),
    ),
    source="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    seconds=0.03,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Record one pass of GPT-2 and of a model of Leadline, and compute the drawing."""
    import torch

    from leadline.experiments.gradient_flow.starts import seen_writes
    from leadline.parts import Transformer
    from leadline.testing.zoo import ZOO

    with torch.random.fork_rng(devices=[]):
        model: Any = ZOO["gpt2"].build(seed).double().eval()
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def watch(name: str) -> Any:
        def hook(_: Any, given: tuple[Any, ...], options: Any, returned: Any) -> None:
            entered = given[0] if given else options["hidden_states"]
            left = returned if isinstance(returned, torch.Tensor) else returned[0]
            seen[name] = (entered, left)

        return hook

    stack = model.transformer
    block = stack.h[0]
    parts = {
        "block": block, "norm 1": block.ln_1, "attention": block.attn, "norm 2": block.ln_2,
        "mlp": block.mlp, "last": stack.h[-1], "final": stack.ln_f,
    }  # fmt: skip
    hooks = [
        one.register_forward_hook(watch(name), with_kwargs=True) for name, one in parts.items()
    ]
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, model.config.vocab_size, (2, LENGTH), generator=rng)
    with torch.no_grad():
        model(input_ids=ids)
        for hook in hooks:
            hook.remove()
        x, y = seen["block"]
        middle = x + seen["attention"][1]
        misses = [
            (seen["norm 1"][0], x),
            (seen["attention"][0], block.ln_1(x)),
            (seen["norm 2"][0], middle),
            (seen["mlp"][0], block.ln_2(middle)),
            (y, middle + seen["mlp"][1]),
        ]
        last, output = seen["last"][1], seen["final"][1]
        own = Transformer(depth=2, width=32, heads=4, vocabulary=50, context=LENGTH, seed=seed)
        own = own.double().eval()
        with seen_writes(own) as writes:
            own.stream(ids % 50)
        state, run = writes.states[0], writes.runs[0]
        for sublayer in list(own.sublayers())[:2]:
            assert sublayer.enter is not None
            state = state + sublayer.branch(sublayer.enter(state), run)
        return Measured(
            {
                "block_error": max(_miss(one, other) for one, other in misses),
                "own_error": _miss(writes.states[2], state),
                "final_change": _miss(output, last),
                "final_error": _miss(output, stack.ln_f(last)),
            }
        )


def _miss(one: Any, other: Any) -> float:
    return float((one - other).norm() / one.norm())
