"""What is measured of Jacobians: the quantities of the probes and of the records, without torch.

A row of the stretch between two sites stands at the layer where the stretch ends. Its point is
"block" for a single block and "from site A" for a longer stretch, so that a product of blocks is
never set beside a block.
"""

from __future__ import annotations

from dataclasses import replace

from leadline.record import Quantity

_DOSHI = "Doshi, He and Gromov 2021, arXiv 2111.12143"

SINGULAR = Quantity(
    name="jacobian.singular",
    title="Largest singular values of a block's Jacobian",
    symbol="σ_k(J_l)",
    formula="rank by rank, the largest first; without a rank, the largest",
    lives_on="layer",
    scale="log",
    high="The block stretches a small change of the stream that much in its strongest direction.",
    low="Below 1 the block shrinks every change of the stream.",
    meaning="How strongly a block stretches small changes of the stream.",
    axes=("rank",),
)
SMALLEST = Quantity(
    name="jacobian.smallest",
    title="Smallest singular values of a block's Jacobian",
    symbol="σ_{N+1−k}(J_l)",
    formula="rank by rank, the smallest first; without a rank, the smallest; never below the truth",
    lives_on="layer",
    scale="log",
    high="No change of the stream is lost in the block.",
    low="Towards 0: the block hardly lets some change of the stream through.",
    meaning="How little a block lets through of the change that it dampens most.",
    axes=("rank",),
)
NORM = Quantity(
    name="jacobian.norm",
    title="Size of a block's Jacobian",
    symbol="‖J_l‖_F / √N",
    formula="root mean square of all singular values, by random probes; interval: one standard error",
    lives_on="layer",
    scale="log",
    high="Above 1 a random change of the stream grows in the block.",
    low="Below 1 it shrinks; 1 is the identity.",
    source=_DOSHI,
    meaning="How a block changes a random small change of the stream.",
    better="one",
)
DISTANCE = Quantity(
    name="jacobian.distance",
    title="Distance of a block from the identity",
    symbol="‖J_l − I‖_F / √N",
    formula="root mean square of all singular values of J − I, by random probes; interval: one "
    "standard error",
    lives_on="layer",
    scale="log",
    high="From 1 on the branches weigh as much as the skip connection: J is not I plus a little.",
    low="Towards 0 the block is the identity plus a little.",
    meaning="How far a block is from passing small changes on as they are.",
    leads=True,
)
BRANCH = Quantity(
    name="jacobian.branch",
    title="Strongest direction of the branches' Jacobian",
    symbol="σ_1(J_l − I)",
    formula="largest singular value of J − I, in each example",
    lives_on="layer",
    scale="log",
    high="From 1 on the branches can take away what the skip connection brings.",
    low="Below 1 no direction is lost: every singular value of J is at least 1 minus this.",
    meaning="How strongly the branches of a block answer to a small change.",
)
LEAK = Quantity(
    name="jacobian.leak",
    title="What later tokens do to earlier ones",
    symbol="max |J' u|",
    formula="largest entry of J' u behind a place of the text, u random before it; up to 64 places",
    lives_on="layer",
    headline="max",
    high="Later tokens reach earlier ones: attention is not causal.",
    low="0: no token is reached by a later one; a proof for texts of up to 65 tokens.",
    meaning="Whether later tokens reach earlier ones.",
    better="low",
)
THROUGH = Quantity(
    name="jacobian.through",
    title="Norm of the product of Jacobians",
    symbol="σ_1(J_l ⋯ J_1)",
    formula="largest singular value of the Jacobian from what entered the stack to site l",
    scale="log",
    high="A small change of the input grows that much on its way.",
    low="Every change of the input shrinks on its way.",
    meaning="How much the blocks so far stretch a small change of the input.",
    beside="jacobian.product_of_norms",
)
PRODUCT = Quantity(
    name="jacobian.product_of_norms",
    title="Product of the norms of Jacobians",
    symbol="σ_1(J_l) ⋯ σ_1(J_1)",
    formula="product of the largest singular values of the blocks 1 to l, in each example",
    scale="log",
    high="What a bound made block by block speaks of; the norm of the product is below it.",
    low="Near the norm of the product: the strongest directions of the blocks lie on each other.",
    meaning="What a bound block by block allows the stretching to be.",
)
PARTIAL = Quantity(
    name="jacobian.partial",
    title="Partial Jacobian norm to the end of the stack",
    symbol="‖J_L ⋯ J_{l+1}‖_F / √N",
    formula="root mean square of all singular values of the Jacobian from site l to the last site; "
    "interval: one standard error",
    scale="log",
    high="Changes at this site arrive enlarged: gradients grow towards the input.",
    low="Changes at this site hardly arrive: gradients vanish towards the input.",
    source=_DOSHI,
    meaning="How a random change at a site arrives at the end of the stack.",
    better="one",
)
_BENETTIN = "Benettin et al. 1980, Meccanica 15"

GROWTH = Quantity(
    name="lyapunov.growth",
    title="Growth of directions in a block, backwards",
    symbol="log R_{ii}(l)",
    formula="logarithm of what the block's J' multiplies the i-th of k orthonormal directions by; "
    "without a rank, the first",
    unit="nats",
    lives_on="layer",
    high="Above 0 gradients grow in this block on their way to the input.",
    low="Below 0 they fade.",
    source=_BENETTIN,
    meaning="How much gradients grow or fade in a block.",
    axes=("rank",),
    better="even",
)
EXPONENT = Quantity(
    name="lyapunov.exponent",
    title="Lyapunov exponents from a site to the end of the stack",
    symbol="λ_i(l)",
    formula="mean growth per block over the blocks behind site l, the largest first; without a rank, "
    "the largest; at layer 0, of the whole stack",
    unit="nats per block",
    high="Above 0 gradients explode with depth.",
    low="Below 0 they vanish; exponents far apart leave one direction of gradient for all.",
    source=_BENETTIN,
    meaning="How fast gradients grow or fade from block to block.",
    leads=True,
    axes=("rank",),
)

FORWARD_GROWTH = replace(
    GROWTH,
    name="lyapunov.forward_growth",
    title="Growth of directions in a block, forwards",
    formula=GROWTH.formula.replace("J'", "J"),
    high="Above 0 changes of the stream grow in this block.",
    meaning="How much small changes of the stream grow or fade in a block.",
)
FORWARD_EXPONENT = replace(
    EXPONENT,
    name="lyapunov.forward_exponent",
    title="Lyapunov exponents from what entered the stack to a site",
    formula="mean growth per block over the blocks before site l, the largest first; without a "
    "rank, the largest; at the last layer, of the whole stack",
    high="Above 0 changes of the stream explode with depth.",
    low="Below 0 they vanish; exponents far apart leave one direction of change for all.",
    meaning="How fast small changes of the stream grow or fade from block to block.",
    leads=False,
)


def _direction(which: str, symbol: str, ends: str) -> tuple[Quantity, Quantity, Quantity]:
    """Where a singular direction enters and leaves, and how far it is turned on the way."""
    shares = "without a token, the largest of all tokens"
    enters = Quantity(
        name=f"jacobian.{which}_entry",
        title=f"Where the {which} direction enters, by token",
        symbol=f"|v_t|² of {symbol}",
        formula=f"share of |v|² at each token, J v = {symbol} u; {shares}",
        lives_on="layer",
        high=f"The changes that {ends} are those of one token.",
        low="They are spread over many tokens.",
        meaning=f"At which tokens the {which} direction of a Jacobian enters.",
        axes=("token", "example"),
    )
    leaves = replace(
        enters,
        name=f"jacobian.{which}_exit",
        title=f"Where the {which} direction leaves, by token",
        symbol=f"|u_t|² of {symbol}",
        formula=f"share of |u|² at each token, J v = {symbol} u; {shares}",
        high="What becomes of them arrives at one token.",
        low="What becomes of them is spread over many tokens.",
        meaning=f"At which tokens the {which} direction of a Jacobian leaves.",
    )
    overlap = Quantity(
        name=f"jacobian.{which}_overlap",
        title=f"How straight the {which} direction passes",
        symbol=f"⟨u, v⟩ of {symbol}",
        formula=f"inner product of the unit vectors u and v, J v = {symbol} u",
        lives_on="layer",
        high="1: the direction is only stretched.",
        low="0: it becomes another one; -1: it is turned round.",
        meaning=f"Whether the {which} direction of a Jacobian is only stretched.",
        axes=("example",),
    )
    return enters, leaves, overlap


STRONGEST = _direction("strongest", "σ_1", "grow most")
WEAKEST = _direction("weakest", "σ_N", "shrink most")
