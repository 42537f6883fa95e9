"""Which faults, hosts and healthy controls rules may be tuned on, and which are only scored.

Everything has a side, "tuning" or "held-out", decided by the sha256 of its name before any rule
was written. The names stand in strata, so that both sides get faults of every cause and hosts of
every kind: within a stratum names are sorted by their digest and dealt in turn, the first to the
side that has fewer so far. The tuning side pairs its faults with its hosts. The held-out side
pairs known faults with new hosts, new faults with known hosts, and new faults with new hosts.

A name never changes its side. The strata below are closed for this reason: a name that is not
among them, such as a fault of a plug-in, goes by the parity of its digest alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

__all__ = ["CONTROLS", "FAULTS", "HOSTS", "SIDES", "Side", "deal", "digest"]
__all__ += ["side_of_control", "side_of_fault", "side_of_host"]

Side = Literal["tuning", "held-out"]
SIDES: tuple[Side, Side] = ("tuning", "held-out")
S = TypeVar("S", bound=str)


def _words(**strata: str) -> Mapping[str, tuple[str, ...]]:
    return {stratum: tuple(names.split()) for stratum, names in strata.items()}


FAULTS = _words(
    residual_missing="""skip-missing-attention skip-missing-mlp skip-missing-everywhere
        skip-missing-parallel""",
    residual_doubled="skip-doubled skip-doubled-everywhere",
    residual_from_wrong_point="skip-after-norm skip-after-norm-everywhere skip-from-block-input",
    write_lost="write-lost-attention write-lost-mlp stream-added-to-itself",
    residual_weight_odd="""write-halved write-negated stream-halved write-added-twice
        layer-scale-zero""",
    residual_scale_wrong="alpha-on-branch alpha-exponent-half stream-halved-everywhere",
    norm_missing="""norm-missing-attention norm-missing-mlp final-norm-missing
        norms-missing-everywhere""",
    norm_misplaced="norm-after-addition norm-before-branch",
    norm_gain_shifted="gain-plus-one gain-plus-one-in-blocks",
    norm_gain_small="gain-zero-in-blocks gain-drawn-small gain-zero-one-norm",
    norm_eps_large="eps-large eps-large-one-norm",
    norm_gain_odd="gain-times-8 gain-over-8",
    weights_zero="mlp-zero attention-output-zero head-zero",
    weights_scale_odd="""qkv-times-100 tensor-times-30 tensor-over-30 layer-times-10
        first-layer-times-30 bias-huge""",
    layers_cloned="layer-cloned layers-all-equal",
    tying_broken="tying-broken head-stale",
    weights_foreign="""tensor-redrawn tensor-transposed layers-swapped tensors-swapped
        layer-redrawn head-redrawn""",
    weights_layout_wrong="rope-layout-wrong keys-values-exchanged head-order-wrong",
    weights_quantised="quantised-layer quantised-everywhere",
    weights_low_rank="low-rank-tensor low-rank-layer",
    buffer_wrong="frequencies-garbage frequencies-zero embed-scale-one",
    weights_not_finite="weight-nan weight-infinite",
    init_too_large="init-times-10 init-config-times-10",
    init_too_small="init-over-10 init-config-over-10",
    depth_scale_missing="depth-scale-missing depth-scale-missing-mlp",
    embedding_scale_wrong="embedding-times-sqrt-width embedding-over-sqrt-width",
    output_head_too_large="head-times-30 final-gain-times-30",
    parameters_unused="second-norm-unused module-unused",
    modules_shared="one-module-for-all-layers mlp-shared-by-two-layers",
    heads_equal="heads-equal-everywhere heads-equal-one-layer",
    gradient_cut="block-input-detached block-without-gradient update-detached skip-detached",
    parameters_frozen="layer-frozen norms-frozen",
    depth="""post-norm-24-layers weights-grow-with-depth embedding-times-100
        upper-half-over-1000""",
    write_dead="rectifier-dead value-head-zero",
    tokens_equal="stream-pooled mean-vector-huge",
    attention_scale_wrong="scale-dropped scale-squared scale-dropped-one-layer",
    attention_spread="queries-keys-times-20 logits-zero",
    future_leaks="mask-removed mask-removed-one-layer mask-one-ahead",
    past_unreached="mask-without-self window-of-two self-only-one-layer mask-row-empty",
    positions_unused="positions-all-equal rotation-lost",
    positions_wrong="keys-not-rotated rotary-base-wrong",
    examples_mixed="attention-over-examples norm-over-examples",
    heads_split_wrong="heads-split-without-transpose heads-merged-without-transpose",
    softmax_axis_wrong="softmax-over-queries softmax-over-heads",
    precision="stream-near-float16 stream-large-in-bfloat16 frequencies-in-bfloat16",
    loss="vocabulary-shifted vocabulary-permuted logits-negated",
    random_in_evaluation="dropout-always-on dropout-in-training-mode",
    adapter_cannot_learn="lora-both-zero lora-not-added",
    lanes="lanes-doubled lanes-doubled-one-layer",
)
"""The faults by the cause that names them best; the last words of a few strata join two causes."""

HOSTS = _words(
    decoder_learned="gpt2 opt",
    decoder_rotary="llama mistral qwen2 qwen3 starcoder2 granite",
    decoder_outer="olmo2 gemma2 gemma3",
    decoder_parallel="gpt_neox phi",
    encoder="bert roberta",
    other="t5 vit",
    recipe="recipe-pre recipe-post recipe-llama recipe-sandwich",
    recipe_deepnorm="recipe-deepnorm recipe-deepnorm-12",
    recipe_scaled="recipe-layerscale recipe-layerscale-rms",
    recipe_lanes="recipe-hyper recipe-hyper-static",
    plain="nano-gpt nano-llama",
    trained_pair="trained-pair-pre trained-pair-post",
    trained_learned="trained-gpt2 trained-nano-gpt",
    trained_rotary="trained-llama trained-qwen3",
    trained_other="trained-bert trained-gpt_neox",
)
"""The healthy models that faults are put into; at initialisation unless their name says trained."""

_DEFAULT = """gpt_bigcode gpt_neo bloom mpt xglm biogpt ctrl ministral gemma phi3 olmo nemotron
persimmon stablelm smollm3 bitnet apertus arcee glm ernie4_5 helium hunyuan_v1_dense seed_oss
diffllama nanochat modernbert-decoder gpt_neox-sequential falcon-sequential doge minicpm3 openai-gpt
opt-post gptj codegen cohere cohere2 falcon falcon-new stablelm-parallel glm4 hyperclovax olmo3
exaone4 mixtral qwen2_moe qwen3_moe olmoe phimoe granitemoe deepseek_v2 deepseek_v3 camembert
xlm-roberta electra distilbert mpnet albert ernie roformer nomic_bert esm modernbert eurobert
megatron-bert t5-gated mt5 bart mbart pegasus marian whisper deit beit dinov2 ijepa
clip_vision_model siglip_vision_model wav2vec2 hubert clip"""
_LIVELY = """gpt2 llama mistral qwen2 qwen3 starcoder2 granite olmo2 gemma2 gemma3_text gpt_neox phi
opt bert roberta t5 vit bloom gemma phi3 olmo stablelm smollm3 cohere falcon glm4 mixtral olmoe
distilbert electra modernbert bart dinov2 mamba gpt_oss deepseek_v3"""

CONTROLS = _words(
    connection="""admin b2t completep deepnorm deepscalelm denseformer depth_attention depth_mup
        dropout dual gated gtrxl highway hyper identity lambda_skip laurel layerdrop layerscale
        manifold_hyper multiplier orthogonal rescaled_dropout rezero running_mean skipinit
        stochastic_depth variance_gate weighted""",
    placement="hybrid keel layernorm_scaling mix normformer output parallel post pre sandwich subln",
    norm="derf dyt layernorm rmsnorm",
    init="deepnorm depth_scaled gpt2 mup subln tfixup xavier",
    mlp="geglu gelu relu silu swiglu",
    recipe="bert-base deepnet gemma gpt-j gpt-neox gpt1 gpt2 llama olmo2",
    default=_DEFAULT,
    lively=_LIVELY,
    inputs="""one-token-repeated-gpt2 one-token-repeated-trained-llama one-example-llama
        one-example-trained-pair-pre two-tokens-gpt2 two-tokens-trained-gpt2 padded-batch-gpt2
        padded-batch-bert left-padded-llama long-text-trained-pair-pre short-text-trained-gpt2
        random-tokens-trained-llama""",
    tuning="""lora-at-start-gpt2 lora-at-start-llama lora-at-start-trained-gpt2
        lora-at-start-trained-llama frozen-lower-layers-trained-gpt2
        frozen-lower-layers-trained-pair-pre frozen-embedding-llama last-layers-only-trained-llama
        dropout-gpt2 dropout-bert dropout-trained-gpt2 dropout-opt""",
    design="""zero-output-llama zero-output-gpt2 zero-gain-gpt2 zero-layer-scale-vit tied-llama
        untied-gpt2 deep-gpt2 deep-llama deep-recipe-pre wide-gpt2 one-layer-gpt2 two-layers-llama
        one-head-gpt2 bfloat16-llama float64-gpt2 eager-gpt2 window-mistral shared-layers-albert
        no-positions-recipe torch-encoder""",
)
"""Healthy models: by what is varied. A host itself is a control too, on the side of its host."""

_SALT = "leadline faults 1 "


def digest(name: str) -> int:
    """A number that a name always gives, on every machine."""
    return int.from_bytes(hashlib.sha256((_SALT + name).encode()).digest()[:8], "big")


def deal(
    strata: Mapping[str, tuple[str, ...]],
    sides: tuple[S, S],
    *,
    key: Callable[[str], int] = digest,
    prefixed: bool = False,
) -> dict[str, S]:
    """Deal every stratum to two sides in the order of the names' digests."""
    dealt: dict[str, S] = {}
    counts: dict[S, int] = dict.fromkeys(sides, 0)
    for stratum, names in strata.items():
        full = [f"{stratum}/{name}" if prefixed else name for name in names]
        fewer = min(sides, key=lambda side: counts[side])
        other = sides[1 - sides.index(fewer)]
        for place, name in enumerate(sorted(full, key=key)):
            side = other if place % 2 else fewer
            dealt[name] = side
            counts[side] += 1
    return dealt


_FAULT_SIDES: dict[str, Side] = deal(FAULTS, SIDES)
_HOST_SIDES: dict[str, Side] = deal(HOSTS, SIDES)
_CONTROL_SIDES: dict[str, Side] = deal(CONTROLS, SIDES, prefixed=True)
_CONTROL_SIDES |= {f"host/{name}": side for name, side in _HOST_SIDES.items()}


def _by_parity(name: str) -> Side:
    return SIDES[digest(name) % 2]


def side_of_fault(name: str) -> Side:
    """The side of a fault."""
    return _FAULT_SIDES.get(name) or _by_parity(name)


def side_of_host(name: str) -> Side:
    """The side of a host."""
    return _HOST_SIDES.get(name) or _by_parity(name)


def side_of_control(name: str) -> Side:
    """The side of a healthy control, such as `connection/rezero` or `host/gpt2`."""
    return _CONTROL_SIDES.get(name) or _by_parity(name)
