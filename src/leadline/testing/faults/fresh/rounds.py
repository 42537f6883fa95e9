"""Which fresh faults, hosts and healthy controls are scored in which round.

The tuning and held-out sides of `leadline.testing.faults.split` were the first round: once they had
been scored and their misses looked at, rules were changed, and a changed rule needs cases that
nobody has seen. Each round here has hosts, kinds of faults and controls of its own, dealt as the
split deals them: within a stratum by the digest of the name, before any rule was changed. Every
fault of the first round is put into hosts of both rounds as well.

Rounds 2 and 3 have been scored and looked at. Round 4 takes the hosts and healthy models of both
again, each in another size, with other seeds and other text: its names are theirs behind `again-`.

A name never changes its round, so the strata are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from leadline.testing.faults.split import deal, digest

__all__ = ["AGAIN", "CONTROLS", "FAULTS", "HOSTS", "ROUNDS", "Round", "case_key", "case_seed"]
__all__ += ["names_in", "round_of_control", "round_of_fault", "round_of_host"]

Round = Literal["round-2", "round-3", "round-4"]
ROUNDS: tuple[Round, Round] = ("round-2", "round-3")
"""The rounds that names were dealt to; round 4 is made of both."""
AGAIN = "again-"
"""Stands before the names of round 4."""


def _words(**strata: str) -> Mapping[str, tuple[str, ...]]:
    return {stratum: tuple(names.split()) for stratum, names in strata.items()}


FAULTS = _words(
    mask_leak="mask-multiplied mask-added-as-one mask-transposed norm-over-tokens",
    mask_reach="mask-in-chunks first-token-hidden",
    attention_scale="scale-of-width scale-multiplied",
    heads="head-duplicated groups-repeated-wrong",
    rotary="rope-scaling-doubled partial-rotary-lost",
    learned_positions="positions-shifted positions-clamped",
    weights_layout="gate-up-exchanged value-heads-rolled",
    weights_foreign="queries-keys-exchanged mlp-units-misordered layers-reversed layers-shifted",
    vocabulary="tokens-inserted head-tied-by-mistake",
    not_loaded="bias-lost gain-not-loaded",
    norms="final-norm-twice norms-exchanged",
    residual="sum-halved block-result-dropped",
    initialisation="layer-default-init positions-drawn-large",
    rank="tensor-constant mlp-units-equal",
    digits="layer-in-float8 embedding-quantised",
    sharing="norm-shared attention-shared-by-two-layers",
    gradient="embedding-detached queries-detached",
    random="attention-dropout-on drop-path-on",
    adapters="lora-frozen lora-detached",
)
"""Kinds of faults that the first round lacks, by what is wrong."""

HOSTS = _words(
    decoder_added="biogpt xglm",
    decoder_rotary="smollm3 seed_oss arcee ernie4_5 hunyuan_v1_dense nemotron",
    decoder_serial="stablelm helium",
    decoder_fused="phi3 glm",
    decoder_embed_scale="gemma vaultgemma",
    decoder_outer="olmo3 exaone4",
    decoder_sandwich="glm4 recipe-sandwich-9",
    decoder_parallel="cohere stablelm-parallel",
    depth_scaled="gpt_bigcode plain-gpt",
    plain="plain-llama plain-encoder",
    encoder="camembert electra",
    encoder_decoder="mt5 t5-gated",
    vision="deit ijepa",
    recipe_pre="recipe-pre-4 recipe-pre-16",
    recipe_post="recipe-post-5 recipe-post-10",
    recipe_rotary="recipe-rotary-7 recipe-rotary-12",
    recipe_deepnorm="recipe-deepnorm-8 recipe-deepnorm-16",
    recipe_scaled="recipe-layerscale-5 recipe-layerscale-12",
    recipe_lanes="recipe-hyper-5 recipe-hyper-9",
    trained_learned="trained-gpt_bigcode trained-plain-gpt",
    trained_rotary="trained-smollm3 trained-seed_oss",
    trained_own="trained-plain-llama trained-recipe-rotary",
    trained_outer="trained-recipe-post trained-recipe-sandwich",
)
"""Hosts of other families, depths, widths and numbers of heads than those of the first round."""

CONTROLS = _words(
    resized_connection="""admin b2t completep deepnorm deepscalelm denseformer depth_attention
        depth_mup dropout dual gated gtrxl highway hyper identity lambda_skip laurel layerdrop
        layerscale manifold_hyper multiplier orthogonal rescaled_dropout rezero running_mean
        skipinit stochastic_depth variance_gate weighted""",
    resized_placement="""hybrid keel layernorm_scaling mix normformer output parallel post pre
        sandwich subln""",
    resized_norm="derf dyt layernorm rmsnorm",
    resized_init="deepnorm depth_scaled gpt2 mup subln tfixup xavier",
    resized_mlp="geglu gelu relu silu swiglu",
    resized_type="""gpt2 bloom mpt opt xglm biogpt ctrl mistral ministral qwen3 gemma phi3 olmo
        starcoder2 persimmon stablelm bitnet apertus glm helium nanochat modernbert-decoder
        gpt_neox-sequential granite minicpm3 doge openai-gpt opt-post gptj gpt_neox phi cohere2
        falcon gemma2 gemma3_text hyperclovax olmo2 mixtral qwen3_moe olmoe gpt_oss granitemoe
        deepseek_v3 glm4_moe mamba lfm2 qwen3_next rwkv bert xlm-roberta distilbert mpnet deberta
        albert ernie roformer nomic_bert esm megatron-bert modernbert eurobert umt5 bart mbart
        pegasus marian whisper beit dinov2 dinov3_vit clip_vision_model siglip_vision_model
        videomae wav2vec2 hubert audio-spectrogram-transformer""",
    odd_inputs="""one-token-repeated-smollm3 one-token-repeated-trained-gpt_bigcode
        one-example-phi3 one-example-trained-seed_oss two-tokens-stablelm
        two-tokens-trained-recipe-rotary padded-batch-camembert padded-batch-arcee
        left-padded-ernie4_5 left-padded-cohere random-tokens-trained-smollm3
        random-tokens-trained-gpt_bigcode many-examples-gemma many-examples-recipe-pre-4
        long-olmo3 long-nemotron two-kinds-of-tokens-glm two-kinds-of-tokens-biogpt""",
    text="""long-text-trained-smollm3 long-text-trained-seed_oss short-text-trained-recipe-post
        short-text-trained-smollm3 padded-text-trained-gpt_bigcode padded-text-trained-seed_oss
        one-window-trained-recipe-sandwich one-window-trained-gpt_bigcode""",
    fine_tuning="""lora-at-start-phi3 lora-at-start-camembert lora-at-start-trained-seed_oss
        lora-at-start-trained-plain-gpt frozen-lower-layers-trained-smollm3
        frozen-lower-layers-trained-recipe-post frozen-embedding-arcee frozen-embedding-stablelm
        last-layers-only-trained-plain-llama last-layers-only-trained-recipe-rotary
        dropout-gpt_bigcode dropout-electra dropout-biogpt dropout-trained-plain-gpt
        frozen-norms-nemotron frozen-norms-trained-seed_oss""",
    sound_design="""zero-output-arcee zero-output-gpt_bigcode zero-output-phi3
        zero-output-plain-llama zero-gain-smollm3 zero-gain-stablelm layer-scale-deit
        layer-scale-seed_oss deep-ernie4_5 deep-cohere two-layers-glm one-layer-nemotron
        one-head-seed_oss one-head-biogpt bfloat16-smollm3 bfloat16-plain-llama float64-gemma
        float64-plain-gpt tied-arcee tied-ernie4_5 eager-olmo3 eager-camembert no-positions-12
        no-positions-5""",
)
"""Healthy models by what is varied; a host itself is a control too, in the round of its host."""

_SALT = "fresh "
"""Set before every name, so that a name that both files know gets another digest in each."""


def _key(name: str) -> int:
    return digest(_SALT + name)


_FAULT_ROUNDS: dict[str, Round] = deal(FAULTS, ROUNDS, key=_key)
_HOST_ROUNDS: dict[str, Round] = deal(HOSTS, ROUNDS, key=_key)
_CONTROL_ROUNDS: dict[str, Round] = deal(CONTROLS, ROUNDS, key=_key, prefixed=True)
_CONTROL_ROUNDS |= {f"host/{name}": side for name, side in _HOST_ROUNDS.items()}

_AGAIN: Mapping[str, Mapping[str, None]] = {
    "faults": dict.fromkeys(_FAULT_ROUNDS),
    "hosts": dict.fromkeys(AGAIN + name for name in _HOST_ROUNDS),
    "controls": dict.fromkeys(
        f"{kind}/{AGAIN}{name}"
        for kind, _, name in (full.partition("/") for full in _CONTROL_ROUNDS)
        if kind == "host" or kind.startswith("resized_")
    ),
}
"""The names of round 4, in order: every fresh fault, every fresh host again, and as controls the hosts
themselves and every part and model type again."""


def case_key(fault: str, host: str) -> int:
    """By what the hosts of a fault are sorted; the first ones are its cases."""
    return _key(f"{fault} {host}")


def case_seed(fault: str, host: str) -> int:
    """The seed of a fault in a host of a round."""
    return _key(f"{fault} {host} seed") % 1000


def names_in(side: Round, *, of: Literal["faults", "hosts", "controls"]) -> list[str]:
    """The names of a round, in the order of the strata."""
    if side == "round-4":
        return [*_AGAIN[of]]
    rounds = {"faults": _FAULT_ROUNDS, "hosts": _HOST_ROUNDS, "controls": _CONTROL_ROUNDS}[of]
    return [name for name, one in rounds.items() if one == side]


def round_of_fault(name: str) -> Round | None:
    """The round in which a fresh fault was new, None where the fault is not one."""
    return _FAULT_ROUNDS.get(name)


def round_of_host(name: str) -> Round | None:
    """The round of a fresh host, None where the host is not one."""
    return "round-4" if name in _AGAIN["hosts"] else _HOST_ROUNDS.get(name)


def round_of_control(name: str) -> Round | None:
    """The round of a fresh control, None where the control is not one."""
    return "round-4" if name in _AGAIN["controls"] else _CONTROL_ROUNDS.get(name)
