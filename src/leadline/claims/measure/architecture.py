"""How the models of the notes are built: GPT-1, GPT-2, BERT and their feed-forward networks.

Read from small random models of Hugging Face, by the anatomy (which proves every write by its
balance) and by the probe `attention`; from the configurations that Hugging Face starts a family
from, which are those of the released models; and from Leadline's own recipes and inits. Nothing here
touches the global random numbers.

GPT-1 as the decoder of 2017 without cross-attention (Radford et al. 2018; Vaswani et al. 2017, arXiv
1706.03762): the claim is about the blocks, masked self-attention and a feed-forward network with a
norm after each addition. The reach is that the rest is that decoder's too: its activation is ReLU and
its positions are sines, GPT-1 has GELU and learned positions.

GPT-2 (Radford et al. 2019): "after the last self-attention block" is read as after the last block,
attention and MLP, as the paper's blocks are. Residual weights are scaled by 1/sqrt(N), N "the number
of residual layers": these are the additions, two per block, which is the claim. With N the number of
blocks, which is what depth means elsewhere, the factor is too large by sqrt(2): the reach.

BERT (Devlin et al. 2018, arXiv 1810.04805) "needs no mask": the sentence stands beside the causal
mask and means that one. A reader who leaves out every mask meets padding: sentences of different
lengths in one batch need a mask of padding, or the words change with the filler.

A head "usually much smaller" than the stream is read as at least tenfold, in the median over the
published recipes that Leadline knows.

The MLP is s(X W_1 + b_1) W_2 + b_2 at every position, with ReLU or the tanh form of GELU that GPT-2
uses. A mixed feature is read as an interaction, f(x + a + b) - f(x + a) - f(x + b) + f(x), which is
zero for every affine map, whatever a and b. W_1 raises the dimension in GPT-1, GPT-2 and the dense
models that Leadline knows: the claim. Not so the experts of a mixture (Qwen3 with 128 experts: 768
against 2048 in its published configuration) nor the MLP of the note's own experiment on rank collapse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, measures

if TYPE_CHECKING:
    from torch import Tensor

SMALL_GPT = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 32, "vocab_size": 100}
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": SMALL_GPT | {"bos_token_id": None, "eos_token_id": None},
    "openai-gpt": SMALL_GPT,
    "bert": {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "vocab_size": 100,
    },
}
GPT2_STD = 0.02


def hf_configuration(family: str, **fields: Any) -> Any:
    """The configuration that a family starts from, with some fields changed."""
    from leadline.errors import require

    transformers: Any = require("transformers", extra="hf")
    return transformers.AutoConfig.for_model(family, **fields)


def hf_model(family: str, *, seed: int, **fields: Any) -> Any:
    """A small random model of a family, in evaluation mode and float32."""
    import torch

    from leadline.errors import require

    transformers: Any = require("transformers", extra="hf")
    configuration = hf_configuration(family, **(SMALL[family] | fields))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return transformers.AutoModel.from_config(configuration).eval()


def branch_of(model: Any, branch: str, *, layer: int = 1) -> Any:
    """The attention or the MLP of one layer of Leadline's Transformer, in float64."""
    return getattr(model.blocks[layer - 1], branch).branch.double()


def attention_record(model: Any, ids: Any, *, seed: int) -> Any:
    """What the probe `attention` says of a model."""
    from leadline.instruments.passes.measurement import measure

    return measure(model, ids, probes="attention", seed=seed)


def attention_by_layer(model: Any, ids: Any, quantity: str, *, seed: int) -> Any:
    """One quantity of the probe `attention`, a value per layer."""
    record = attention_record(model, ids, seed=seed)
    return record.by_layer(f"attention.{quantity}", point="attention").values


def transformer(**changes: Any) -> Any:
    """Leadline's Transformer with these changes to its recipe."""
    from leadline.parts import Transformer

    return Transformer(**changes)


def gpt2_start(seed: int, *, tokens: int) -> Any:
    """The facts of a layer of GPT-2 small before training, for a text of `tokens` tokens.

    Queries and keys are drawn alike in all layers, so one layer stands for all of them. It is measured
    on a few tokens, and their number in the facts is set afterwards.
    """
    from leadline.models.inputs import random_tokens
    from leadline.parts import Recipe, Transformer
    from leadline.reading.bounds.attention_facts import attention_sublayers, facts_of

    recipe = Recipe.named("gpt2").but(depth=1, mlp="none", vocabulary=64, context=8)
    model = Transformer(recipe, seed=seed)
    ids = random_tokens(model, examples=1, length=8, seed=seed)
    record = attention_record(model, ids, seed=seed)
    sublayers = attention_sublayers(record)
    facts = facts_of(record, sublayers)[sublayers[0].address, None][0]
    return replace(facts, queries=tokens, keys=tokens)


def farthest_from_one(ratios: Iterable[float]) -> float:
    """The ratio that is farthest from what it should be."""
    return float(max(ratios, key=lambda ratio: abs(ratio - 1)))


def _sublayers(anatomy: Any) -> list[Any]:
    return [one for stack in anatomy.stacks for block in stack.blocks for one in block.sublayers]


def _published() -> Iterator[tuple[str, Any]]:
    """The recipes of published models, by name."""
    from leadline.parts.recipes import RECIPES

    return ((name, RECIPES.build(name)) for name in RECIPES.names() if name != "default")


def _mlp(kind: str, *, context: int, seed: int) -> Any:
    sizes = {"depth": 1, "width": 16, "heads": 2, "vocabulary": 4, "context": context}
    return branch_of(transformer(**sizes, mlp=kind, init="xavier", seed=seed), "mlp")


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@measures("gpt1-decoder-without-cross-attention")
def gpt1_decoder_without_cross_attention(seed: int) -> Measured:
    """Read the parts, the masks and the activation of a small GPT-1."""
    import torch

    from leadline.instruments.passes.measurement import anatomy_of, measure
    from leadline.reading.bounds.attention_facts import attention_sublayers

    model = hf_model("openai-gpt", seed=seed)
    ids = torch.randint(100, (2, 12), generator=torch.Generator().manual_seed(4210 + seed))
    anatomy = anatomy_of(model, ids, seed=seed)
    sublayers = _sublayers(anatomy)
    record = measure(model, ids, probes="attention", anatomy=anatomy, seed=seed)
    attentions = attention_sublayers(record)
    grid = torch.linspace(-4, 4, 801)
    with torch.no_grad():
        activation = model.h[0].mlp.act(grid)
        gelu = torch.nn.functional.gelu(grid, approximate="tanh")
    return Measured(
        cross_attentions=sum(one.point == "cross-attention" for one in attentions),
        layers_not_causal=sum(one.mask != "causal" for one in attentions),
        settled_share=sum(one.settle is not None for one in sublayers) / len(sublayers),
        activation_difference=(activation - torch.relu(grid)).abs().max(),
        gelu_error=(activation - gelu).abs().max(),
        learned_positions=model.positions_embed.weight.shape[0],
    )


@measures("gpt2-norms-moved")
def gpt2_norms_moved(seed: int) -> Measured:
    """Count where the norms of GPT-1 and GPT-2 stand, and watch what enters GPT-2's last one."""
    import torch

    from leadline.instruments.passes.measurement import anatomy_of

    ids = torch.randint(100, (2, 10), generator=torch.Generator().manual_seed(4900 + seed))
    gpt2, gpt1 = (hf_model(name, seed=seed) for name in ("gpt2", "openai-gpt"))
    writes, before = (_sublayers(anatomy_of(model, ids, seed=seed)) for model in (gpt2, gpt1))
    passed: list[Tensor] = []
    hooks = [
        gpt2.h[-1].register_forward_hook(
            lambda _m, _i, out: passed.append(out[0] if isinstance(out, tuple) else out)
        ),
        gpt2.ln_f.register_forward_hook(lambda _m, entering, _o: passed.append(entering[0])),
    ]
    try:
        with torch.no_grad():
            gpt2(ids)
    finally:
        for hook in hooks:
            hook.remove()
    pre = sum(one.placement == "pre" and one.settle is None for one in writes)
    post = sum(one.settle is not None for one in before)
    return Measured(
        writes=len(writes),
        gpt2_pre=pre,
        gpt2_not_pre=len(writes) - pre,
        gpt1_post=post,
        gpt1_not_post=len(before) - post,
        final_norm_error=(passed[0] - passed[1]).abs().max(),
    )


@measures("gpt2-residual-scaling")
def gpt2_residual_scaling(seed: int) -> Measured:
    """The spread of the weights that write to the stream, of Hugging Face and of Leadline's init."""
    width = 128
    additions, blocks, leadline = [], [], []
    for depth in (2, 8):
        model = hf_model("gpt2", n_embd=width, n_layer=depth, seed=seed)
        ours = transformer(
            depth=depth, width=width, heads=4, vocabulary=8, context=8, init="gpt2", seed=seed
        )
        for layer, block in enumerate(model.h, start=1):
            for weight in (block.attn.c_proj.weight, block.mlp.c_proj.weight):
                spread = float(weight.detach().std()) / GPT2_STD
                additions.append(spread * math.sqrt(2 * depth))
                blocks.append(spread * math.sqrt(depth))
            for weight in (
                branch_of(ours, "attention", layer=layer).output.weight,
                branch_of(ours, "mlp", layer=layer).down.weight,
            ):
                leadline.append(float(weight.detach().std()) / GPT2_STD * math.sqrt(2 * depth))
    return Measured(
        ratio_additions=farthest_from_one(additions),
        ratio_blocks=sum(blocks) / len(blocks),
        ratio_own=farthest_from_one(leadline),
    )


@measures("gpt2-vocabulary-and-context")
def gpt2_vocabulary_and_context(seed: int) -> Measured:
    """Read the configurations of GPT-1 and GPT-2, and count where Leadline's recipes differ."""
    from leadline.parts import Recipe

    gpt1, gpt2 = hf_configuration("openai-gpt"), hf_configuration("gpt2")
    differences = 0
    for recipe, configuration in ((Recipe.named("gpt1"), gpt1), (Recipe.named("gpt2"), gpt2)):
        differences += sum(
            (
                recipe.vocabulary != configuration.vocab_size,
                recipe.context != configuration.n_positions,
                recipe.depth != configuration.n_layer,
                recipe.width != configuration.n_embd,
            )
        )
    return Measured(
        vocabulary=gpt2.vocab_size,
        context=gpt2.n_positions,
        context_before=gpt1.n_positions,
        recipe_differences=differences,
    )


@measures("bert-needs-no-mask")
def bert_needs_no_mask(seed: int) -> Measured:
    """Count hidden keys in a small BERT, then add filler with and without a mask of padding."""
    import torch

    from leadline.reading.bounds.attention_facts import attention_sublayers

    real, padded = 7, 12
    # Ten times BERT's own spread of weights: at 0.02 attention hardly does anything.
    model = hf_model("bert", seed=seed, initializer_range=0.2)
    generator = torch.Generator().manual_seed(4200 + seed)
    ids = torch.randint(1, 100, (1, padded), generator=generator)
    ids[:, real:] = 0
    sublayers = attention_sublayers(attention_record(model, ids[:, :real], seed=seed))
    shapes = [shape for one in sublayers for shape in one.shapes]
    visible = [
        min(shape.allowed, default=shape.keys if one.mask == "none" else 1)
        for shape, one in zip(shapes, sublayers, strict=True)
    ]
    there = (torch.arange(padded) < real).long()[None]
    with torch.no_grad():
        alone = model(ids[:, :real]).last_hidden_state
        bare = model(ids).last_hidden_state[:, :real]
        masked = model(ids, attention_mask=there).last_hidden_state[:, :real]
    size = float(alone.square().mean().sqrt())
    return Measured(
        tokens=real,
        fewest_seen=min(visible),
        hidden_keys=real - min(visible),
        change_without_mask=float((bare - alone).abs().max()) / size,
        change_with_mask=float((masked - alone).abs().max()) / size,
    )


@measures("head-width-much-smaller")
def head_width_much_smaller(seed: int) -> Measured:
    """Divide the width of the stream by that of a head in every published recipe."""
    ratios: list[float] = []
    for _, recipe in _published():
        assert recipe.heads is not None
        option = recipe.choice("attention").options.get("head_width")
        size = option if isinstance(option, int) else recipe.width // recipe.heads
        ratios.append(recipe.width / size)
    return Measured(
        median_ratio=statistics.median(ratios),
        least_ratio=min(ratios),
        most_ratio=max(ratios),
        models=len(ratios),
    )


@measures("ffn-raises-dimension")
def ffn_raises_dimension(seed: int) -> Measured:
    """Build one layer of each recipe without weights, and divide hidden width by width."""
    import torch

    from leadline.experiments.rank_collapse.note_block import note_blocks
    from leadline.parts import Transformer
    from leadline.parts.branches import Branch

    ratios: dict[str, float] = {}
    for name, recipe in _published():
        with torch.device("meta"):
            model = Transformer(recipe.but(depth=1, vocabulary=8))
        ratios[name] = next(
            weight.shape[0] / weight.shape[1]
            for part in model.modules()
            if isinstance(part, Branch)
            for role, weight in part.weights()
            if role == "up"
        )
    mixture = hf_configuration("qwen3_moe")
    expert = mixture.moe_intermediate_size
    with torch.random.fork_rng(devices=[]):
        note: Any = note_blocks(1, 128, 1, mlp=True, skip=False, norm="layernorm", causal=False)[0]
    return Measured(
        gpt2_ratio=ratios["gpt2"],
        least_ratio=min(ratios.values()),
        most_ratio=max(ratios.values()),
        expert_ratio=expert / mixture.hidden_size,
        experts_together=mixture.num_experts * expert / mixture.hidden_size,
        note_ratio=note.up.weight.shape[0] / note.up.weight.shape[1],
    )


@measures("ffn-position-wise")
def ffn_position_wise(seed: int) -> Measured:
    """Set the MLP against its formula, then put its tokens in another order and change one."""
    import torch

    from leadline.parts.branches import Run

    generator = torch.Generator().manual_seed(4500 + seed)
    formula, order, elsewhere = [], [], []
    for name, activation in (("relu", lambda h: np.maximum(h, 0)), ("gelu_tanh", _gelu_tanh)):
        branch = _mlp(name, context=9, seed=seed)
        up, down = branch.up, branch.down
        with torch.no_grad():
            for layer in (up, down):
                layer.bias.copy_(torch.randn(layer.bias.shape, generator=generator))
            x = torch.randn(1, 9, 16, generator=generator, dtype=torch.float64)
            out = branch(x, Run())[0]
            turned = torch.randperm(9, generator=generator)
            other = branch(x[:, turned], Run())[0]
            moved = x.clone()
            moved[0, 4] += 1
            after = branch(moved, Run())[0]
        w1, b1, w2, b2 = (
            part.detach().numpy() for part in (up.weight, up.bias, down.weight, down.bias)
        )
        by_hand = activation(x[0].numpy() @ w1.T + b1) @ w2.T + b2
        formula.append(float(np.abs(out.numpy() - by_hand).max()))
        order.append(float((other - out[turned]).abs().max()))
        elsewhere.append(float((after - out)[torch.arange(9) != 4].abs().max()))
    errors = {"formula_error": max(formula), "order_error": max(order)}
    return Measured(errors | {"change_elsewhere": max(elsewhere)})


@measures("ffn-mixes-features")
def ffn_mixes_features(seed: int) -> Measured:
    """The interaction of two coordinates over the effect of both, with and without activation."""
    import torch

    from leadline.parts.branches import Run

    generator = torch.Generator().manual_seed(4510 + seed)
    x = torch.randn(1, 32, 16, generator=generator, dtype=torch.float64)
    step = torch.zeros(2, 16, dtype=torch.float64)
    step[0, 3] = step[1, 8] = 1.0
    interactions: dict[str, float] = {}
    with torch.no_grad():
        for name in ("relu", "gelu", "linear"):
            branch = _mlp("gelu" if name == "linear" else name, context=32, seed=seed)

            def f(at: Tensor, branch: Any = branch, name: str = name) -> Tensor:
                return branch.down(branch.up(at)) if name == "linear" else branch(at, Run())

            both = f(x + step[0] + step[1]) - f(x)
            mixed = both - (f(x + step[0]) - f(x)) - (f(x + step[1]) - f(x))
            interactions[f"interaction_{name}"] = float(mixed.norm() / both.norm())
    return Measured(interactions)
