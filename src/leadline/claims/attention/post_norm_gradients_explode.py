"""Post-norm, or too little normalisation, amplifies gradients with depth until they explode.

The note concludes it from the norms of attention, for any weights, so it is read before training.
Exploding is read as a thousandfold: the gradient of the loss at any layer over that at the last one.
The sentence names two designs: post-norm, and stacks that lack norms. Both are claims; the second is
right with Xavier's draw. In post-norm the norms divide by what skips and branches have added; a small
factor is read as the root of a thousand.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTHS = (12, 24, 48)
WIDTH, HEADS, TOKENS, EXAMPLES = 64, 4, 32, 2
EXPLODING = "Exploding is read as growing at least a thousandfold."


@claim(
    "post-norm-gradients-explode",
    group="attention",
    notes=("deep-dive",),
    title="In post-norm models, as in models without norms, gradients explode with depth",
    formula=r"\left\| \frac{\partial L}{\partial x_l} \right\| \gg "
    r"\left\| \frac{\partial L}{\partial x_L} \right\|",
    plain="‖∂L/∂x_l‖ ≫ ‖∂L/∂x_L‖",
    says="With post-norm, or where normalisation is lacking, the norms of attention rise with depth and "
    "amplify the gradients until they explode.",
    correction="Before training the gradients of a post-norm model do not explode: over 12 to 48 "
    "layers they stay within a small factor of the last one's. Without any norm they do explode where the stream grows, as "
    "with Xavier's draw.",
    why="Models were drawn as Xavier draws and one gradient computed through each. In post-norm models of "
    "12, 24 and 48 layers the largest gradient of any layer was {post_most:.1f} times that of the last, "
    "the smallest {post_least:.2f} times, in the mean over the draws. In 24 layers without norms the "
    "largest was {none_growth} times the last. In 48 pre-norm layers it was {pre_most:.1f} times.",
    checks=(
        Check(
            "post_growth", "claim", "at least", 1e3,
            label="largest gradient over the last one's, post-norm, 48 layers",
            because=EXPLODING, log=True,
        ),
        Check(
            "none_growth", "claim", "at least", 1e3,
            label="largest gradient over the last one's, no norm, 24 layers",
            because=EXPLODING, log=True,
        ),
        Check(
            "post_most", "correction", "at most", 30.0,
            label="largest gradient over the last one's, post-norm, three depths",
            because="Small is read as at most the root of a thousand, rounded; draws scatter between "
            "1 and 9.",
            log=True,
        ),
        Check(
            "post_least", "correction", "at least", 1 / 30.0,
            label="smallest gradient over the last one's, post-norm, three depths",
            because="The same factor to the other side; draws scatter between 0.3 and 1.",
            log=True,
        ),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745",
    seconds=1.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """One forward and one backward pass of every design and depth."""
    from leadline.experiments.gradient_flow.starts import batch_of, built, measured

    batch = batch_of(TOKENS, examples=EXAMPLES, seed=seed)

    def relative(design: str, depth: int) -> tuple[float, ...]:
        model = built(design, depth, width=WIDTH, heads=HEADS, length=TOKENS, seed=seed)
        found = measured(model, batch, design=design, seed=seed).gradients
        return tuple(one / found[-1] for one in found)

    post = {depth: relative("post", depth) for depth in DEPTHS}
    none, pre = relative("no norm", 24), relative("pre", 48)
    lines = {"post-norm": post[48], "pre-norm": pre, "no norm": none}
    return Measured(
        {
            "post_growth": max(post[48]),
            "none_growth": max(none),
            "post_most": max(max(one) for one in post.values()),
            "post_least": min(min(one) for one in post.values()),
            "pre_most": max(pre),
        },
        Picture(
            "layer",
            "gradient at the layer / at the last",
            {
                name: (tuple(float(layer) for layer in range(len(line))), line)
                for name, line in lines.items()
            },
            y_log=True,
        ),
    )
