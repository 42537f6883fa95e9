"""Where the norms stand: the two formulas on layers that can be recomputed, and types of models.

    Post-LN   x' = LN(x + F(x))        Pre-LN   x' = x + F(LN(x))

The formulas are checked on torch's encoder layer, which has the first Transformer's by default
(norm_first=False) and Pre-LN on request, on Leadline's placements, and on a block of GPT-2 as
Hugging Face has it, with what enters and leaves every module taken by hooks, in float64. The
drawing of a block is carried ("reach") to a whole model, blocks and nothing else: GPT-2 norms the
stream once more after the last block.

Placements of types of Hugging Face are read from tiny models with random weights
(`leadline.testing.zoo`): anatomies are proved by the balance equation, so a placement is what the
tensors show, not what a name says. Nothing is drawn that a verdict depends on: one reading is
enough. Counted are types, not models in use, and "nearly all" is nine in ten.

    GPT and BERT       eleven types of BERT's family; six named after GPT, without GPT-1, which is
                       older than the sentence means
    all since GPT-2    one exception decides; looked at are the OPT variant with norms after the
                       additions (OPT-350M, arXiv 2205.01068), Gemma 2 (arXiv 2408.00118), OLMo 2
                       (arXiv 2501.00656)
    nearly all         the notes set Pre-LN against Post-LN, so the claim is that the stream has no
                       norm after an addition; "reach" takes x + F(LN(x)) at its word
    GPT, Llama, T5     GPT-2 is the first GPT meant by "modern"; "reach": the name without a number
                       covers GPT-1. RMSNorm, that of Llama and T5, does not subtract the mean: a
                       constant added to all features changes its output, that of LayerNorm not.

What a place does to the stream is measured in models of 48 untrained layers. A norm before a branch
steadies the mean square of what the branch reads; "reach" is the whole distribution, as covariate
shift means it: its centre, the mean token, which is the mean of four draws since draws scatter. The
stream accumulates: x_L = x_0 + sum of u, and it grows; "reach" is Post-LN, whose norms divide every
sum again and leave prod 1/s of the entry, by linearity.

GPT-3's configuration is not published. The paper (arXiv 2005.14165) gives 175 billion parameters,
the width 12288, the context 2048 and GPT-2's architecture, which fixes the layers: parameters
without embeddings over those of a block, built without memory and counted. 175 billion is rounded
to half a billion, which is 0.3 layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.before_training import (
    SHOWN,
    draw_model,
    seed_of_draw,
    watch_writes,
)

BERT_FAMILY = (
    "bert", "roberta", "camembert", "xlm-roberta", "electra", "distilbert", "albert", "deberta",
    "deberta-v2", "mpnet", "ernie",
)  # fmt: skip
GPT_FAMILY = ("gpt2", "gpt_bigcode", "gpt_neo", "gptj", "gpt_neox", "gpt_oss")
"""The types named after GPT, but for the first of them."""


def survey(seed: int) -> dict[str, Any]:
    """Read every decoder of the zoo, BERT's and GPT's family, GPT-1 and T5."""
    from leadline.testing.zoo import specimens

    decoders = [specimen.name for specimen in specimens(kind="decoder")]
    names = tuple(dict.fromkeys((*decoders, *BERT_FAMILY, *GPT_FAMILY, "openai-gpt", "t5")))
    placements = read_placements(names, seed=seed)
    refused = [name for name in names if name not in placements]
    return {"placements": placements, "decoders": decoders, "refused": refused}


PLACEMENTS = Trial("norms-placements", survey, seconds=8.0)


def read_placements(names: Sequence[str], *, seed: int) -> dict[str, list[str]]:
    """Read the placement of every write of these types; those without a proved anatomy are left out."""
    import torch

    from leadline.anatomy import read_anatomy, untouched
    from leadline.errors import AnatomyError
    from leadline.instruments.passes.running import call
    from leadline.models.inputs import as_inputs
    from leadline.testing.zoo import ZOO

    placements: dict[str, list[str]] = {}
    with _quiet(), torch.random.fork_rng(devices=[]):
        for name in names:
            specimen = ZOO[name]
            model = specimen.build(seed).eval()
            fit, fresh = (as_inputs(specimen.inputs(model, at), model) for at in (1, 2))
            try:
                with untouched(model):
                    anatomy = read_anatomy(
                        model,
                        lambda m=model, i=fit: call(m, i),
                        lambda m=model, i=fresh: call(m, i),
                    )
            except AnatomyError:
                continue
            placements[name] = [
                sublayer.placement
                for stack in anatomy.stacks
                for block in stack.blocks
                for sublayer in block.sublayers
            ]
    return placements


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what transformers says about tiny configurations."""
    from leadline.errors import require

    transformers: Any = require("transformers", extra="hf")
    logging = transformers.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def share(placements: Mapping[str, Sequence[str]], names: Sequence[str], *allowed: str) -> float:
    """Return the share of these types whose every write has one of the allowed placements."""
    return sum(set(placements[name]) <= set(allowed) for name in names) / len(names)


@measures("all-pre-norm-since-gpt2", needs=(PLACEMENTS,))
def all_pre_norm_since_gpt2(seed: int, trials: Results) -> Measured:
    """Count the exceptions among three decoders that are younger than GPT-2."""
    placements = trials[PLACEMENTS.name]["placements"]
    later = ("opt-post", "gemma2", "olmo2")
    return Measured(
        exceptions=round((1.0 - share(placements, later, "pre")) * len(later)),
        opt_post=share(placements, ("opt-post",), "post"),
        olmo_output=share(placements, ("olmo2",), "output"),
        gemma_both=share(placements, ("gemma2",), "sandwich"),
    )


@measures("gpt-and-bert-pre-norm", needs=(PLACEMENTS,))
def gpt_and_bert_pre_norm(seed: int, trials: Results) -> Measured:
    """Count the placements in the families of GPT and BERT."""
    placements = trials[PLACEMENTS.name]["placements"]
    return Measured(
        gpt_types=len(GPT_FAMILY),
        bert_types=len(BERT_FAMILY),
        gpt_share=share(placements, GPT_FAMILY, "pre"),
        bert_share=share(placements, BERT_FAMILY, "pre"),
        bert_post=share(placements, BERT_FAMILY, "post"),
        gpt1_post=share(placements, ("openai-gpt",), "post"),
    )


@measures("nearly-all-pre-norm", needs=(PLACEMENTS,))
def nearly_all_pre_norm(seed: int, trials: Results) -> Measured:
    """Count the placements of all decoder types that could be read."""
    placements = trials[PLACEMENTS.name]["placements"]
    decoders = [name for name in trials[PLACEMENTS.name]["decoders"] if name in placements]
    with_output = [name for name in decoders if {"sandwich", "output"} & set(placements[name])]
    stream_free = share(placements, decoders, "pre", "sandwich", "output", "none")
    return Measured(
        types=len(decoders),
        stream_free=stream_free,
        exact=share(placements, decoders, "pre"),
        post=1.0 - stream_free,
        output_norms=len(with_output) / len(decoders),
    )


@measures("pre-norm-in-gpt-llama-t5", needs=(PLACEMENTS,))
def pre_norm_in_gpt_llama_t5(seed: int, trials: Results) -> Measured:
    """Read three placements, and what these norms do to a constant."""
    placements = trials[PLACEMENTS.name]["placements"]
    modern = ("gpt2", "llama", "t5")
    changes = {name: _change_by_constant(name, seed) for name in modern}
    return Measured(
        modern=share(placements, modern, "pre"),
        gpt1=share(placements, ("openai-gpt",), "pre"),
        gpt2_shift=changes["gpt2"],
        rms_shift=min(changes["llama"], changes["t5"]),
    )


def _change_by_constant(name: str, seed: int) -> float:
    """Return by how much a constant changes the output of the first norm of a model type."""
    import torch

    model = _build_specimen(name, seed).eval()
    norm = next(
        module
        for path, module in model.named_modules()
        if path.rsplit(".", 1)[-1] in ("ln_1", "input_layernorm", "layer_norm")
    )
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(4, norm.weight.shape[0], generator=rng)
    with torch.no_grad():
        return _miss(norm(x), norm(x + 1.0))


@measures("two-placements", needs=(PLACEMENTS,))
def two_placements(seed: int, trials: Results) -> Measured:
    """Recompute layers of torch and of Leadline from their parts."""
    import torch

    from leadline.experiments.gradient_flow.starts import seen_writes
    from leadline.parts import Transformer

    width, heads, length = 32, 4, 10
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(2, length, width, generator=rng, dtype=torch.float64)
    ids = torch.randint(0, 50, (2, length), generator=rng)
    torch_errors: dict[str, float] = {}
    errors: list[float] = []
    for placement in ("post", "pre"):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            layer = torch.nn.TransformerEncoderLayer(
                width, heads, 64, dropout=0.0, batch_first=True, norm_first=placement == "pre",
                dtype=torch.float64,
            )  # fmt: skip
        layer.train()  # the plain way of computing, not the fused one; there is no dropout
        model = Transformer(
            depth=1, width=width, heads=heads, vocabulary=50, context=length, placement=placement,
            init="xavier", seed=seed,
        ).double().eval()  # fmt: skip
        with torch.no_grad(), seen_writes(model) as writes:
            y = _combine(placement, x, lambda z, f=layer: _attend(f, z), layer.norm1)
            y = _combine(placement, y, lambda z, f=layer: _transform(f, z), layer.norm2)
            torch_errors[f"torch_{placement}"] = _miss(y, layer(x))
            model.stream(ids)
            y = writes.states[0]
            for sublayer, run in zip(model.sublayers(), writes.runs, strict=True):
                norm = sublayer.enter if placement == "pre" else sublayer.settle
                y = _combine(placement, y, lambda z, f=sublayer, r=run: f.branch(z, r), norm)
        errors.append(_miss(y, writes.states[-1]))
    placements = trials[PLACEMENTS.name]["placements"]
    families = (share(placements, ("bert",), "post"), share(placements, ("gpt2",), "pre"))
    return Measured(torch_errors, own=max(errors), families=min(families))


def _combine(placement: str, x: Any, branch: Any, norm: Any) -> Any:
    """Compute one write by the formula of its placement."""
    return x + branch(norm(x)) if placement == "pre" else norm(x + branch(x))


def _attend(layer: Any, x: Any) -> Any:
    return layer.self_attn(x, x, x, need_weights=False)[0]


def _transform(layer: Any, x: Any) -> Any:
    return layer.linear2(layer.linear1(x).relu())


@measures("block-diagram")
def block_diagram(seed: int) -> Measured:
    """Record one pass of GPT-2 and of a model of Leadline, and compute the drawing."""
    import torch

    from leadline.experiments.gradient_flow.starts import seen_writes
    from leadline.parts import Transformer

    length = 12
    model = _build_specimen("gpt2", seed).double().eval()
    stack = model.transformer
    block = stack.h[0]
    modules = (block, block.ln_1, block.attn, block.ln_2, block.mlp, stack.h[-1], stack.ln_f)
    passed: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(module: Any, arguments: tuple[Any, ...], options: Any, returned: Any) -> None:
        entered = arguments[0] if arguments else options["hidden_states"]
        passed[module] = (entered, returned if torch.is_tensor(returned) else returned[0])

    hooks = [one.register_forward_hook(keep, with_kwargs=True) for one in modules]
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, model.config.vocab_size, (2, length), generator=rng)
    ours = Transformer(depth=2, width=32, heads=4, vocabulary=50, context=length, seed=seed)
    ours = ours.double().eval()
    with torch.no_grad():
        model(input_ids=ids)
        for hook in hooks:
            hook.remove()
        x, y = passed[block]
        middle = x + passed[block.attn][1]
        drawing = [
            (passed[block.ln_1][0], x),
            (passed[block.attn][0], block.ln_1(x)),
            (passed[block.ln_2][0], middle),
            (passed[block.mlp][0], block.ln_2(middle)),
            (y, middle + passed[block.mlp][1]),
        ]
        last, output = passed[stack.h[-1]][1], passed[stack.ln_f][1]
        with seen_writes(ours) as writes:
            ours.stream(ids % 50)
        state = writes.states[0]
        for sublayer in list(ours.sublayers())[:2]:
            assert sublayer.enter is not None
            state = state + sublayer.branch(sublayer.enter(state), writes.runs[0])
        return Measured(
            block_error=max(_miss(one, other) for one, other in drawing),
            own_error=_miss(writes.states[2], state),
            final_change=_miss(output, last),
            final_error=_miss(output, stack.ln_f(last)),
        )


def _build_specimen(name: str, seed: int) -> Any:
    """Build a tiny model of a type of Hugging Face, leaving torch's generator as it was."""
    import torch

    from leadline.testing.zoo import ZOO

    with torch.random.fork_rng(devices=[]):
        return ZOO[name].build(seed)


def _miss(one: Any, other: Any) -> float:
    """Return the distance of the second tensor to the first, relative to the first."""
    return float((other - one).norm() / one.norm())


@measures("norm-steadies-inputs")
def norm_steadies_inputs(seed: int) -> Measured:
    """Measure the mean square and the mean token of what every branch reads."""
    squares, centres = _read_inputs("pre", seed)
    bare, _ = _read_inputs("no norm", seed)
    several = [centres, *(_read_inputs("pre", seed_of_draw(seed, draw))[1] for draw in range(3))]
    lines = {"mean square, Pre-LN": squares, "share of the mean token, Pre-LN": centres}
    first, last = (sum(one[at] for one in several) / len(several) for at in (0, -1))
    return Measured(
        scale=max(squares) / min(squares),
        bare=max(bare) / min(bare),
        centre_first=first,
        centre_last=last,
        centre_grown=last / first,
        picture=Picture("sublayer", "of what the branch reads", lines, over=1),
    )


def _read_inputs(design: str, seed: int) -> tuple[list[float], list[float]]:
    """Return the mean square of what every branch reads, and the share of the mean token in it."""
    import torch

    model = draw_model(design, SHOWN, seed)
    states = watch_writes(model, seed).states
    squares, centres = list[float](), list[float]()
    with torch.no_grad():
        for sublayer, x in zip(model.sublayers(), states, strict=False):
            read = x if sublayer.enter is None else sublayer.enter(x)
            squares.append(float(read.square().mean()))
            centres.append(float(read.mean((0, 1)).square().mean()) / squares[-1])
    return squares, centres


@measures("stream-accumulates")
def stream_accumulates(seed: int) -> Measured:
    """Add up the updates of one pass of Pre-LN and of Post-LN."""
    import torch

    errors: dict[str, float] = {}
    pre, post = (watch_writes(draw_model(one, SHOWN, seed), seed) for one in ("pre", "post"))
    for name, writes in (("sum_error", pre), ("post_error", post)):
        last = writes.states[-1]
        total = writes.states[0] + torch.stack(writes.updates).sum(0)
        errors[name] = float((total - last).norm() / last.norm())
    divisors = [
        (x + u).var(-1, correction=0).add(1e-5).sqrt().log().mean()
        for x, u in zip(post.states, post.updates, strict=False)
    ]
    divisor = math.exp(float(torch.stack(divisors).mean()))
    return Measured(
        errors,
        grown=pre.states[-1].square().mean() / pre.states[0].square().mean(),
        divisor=divisor,
        left=divisor ** -len(divisors),
    )


@measures("gpt3-layers")
def gpt3_layers(seed: int) -> Measured:
    """Count a block and the embeddings of GPT-2's recipe at GPT-3's width."""
    import torch

    from leadline.parts import Transformer
    from leadline.parts.recipes import RECIPES

    recipe = RECIPES.get("gpt2")().but(width=12288, heads=96, context=2048)
    counts: list[int] = []
    for depth in (1, 2):
        with torch.device("meta"):
            model = Transformer(recipe.but(depth=depth))
        counts.append(sum(one.numel() for one in model.parameters()))
    block = counts[1] - counts[0]
    rest = counts[0] - block
    return Measured(block=block, layers=(175e9 - rest) / block)
