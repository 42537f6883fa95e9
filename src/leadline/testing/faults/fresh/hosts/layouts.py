"""The layouts of the fresh hosts, as far as they differ from those of known families."""

from __future__ import annotations

from dataclasses import replace

from leadline.testing.faults.hosts.hf_layouts import HF_LAYOUTS, bert_layout, serial_writes
from leadline.testing.faults.hosts.layout import Layout, Outer, Role, Slot, WriteCode

__all__ = ["FRESH_LAYOUTS"]

_LLAMA, _GPT2, _OPT, _T5 = (HF_LAYOUTS[name] for name in ("llama", "gpt2", "opt", "t5"))
_GATE_UP = {
    role: Slot("mlp.gate_up_proj", part=part, fused="halves")
    for part, role in enumerate(("gate", "up"))
}
_UNGATED = replace(
    _LLAMA, weights={role: slot for role, slot in _LLAMA.weights.items() if role != "gate"}
)
_PHI3_WRITES = tuple(
    replace(
        one,
        add=f"residual + self.{dropout}(hidden_states)",
        update=f"self.{dropout}(hidden_states)",
        place=0,
    )
    for one, dropout in zip(
        _LLAMA.additions, ("resid_attn_dropout", "resid_mlp_dropout"), strict=True
    )
)
_PHI3 = replace(
    _LLAMA,
    weights={
        **{
            role: Slot("self_attn.qkv_proj", part=part, fused="grouped")
            for part, role in enumerate(("query", "key", "value"))
        },
        "output": Slot("self_attn.o_proj"),
        **_GATE_UP,
        "down": Slot("mlp.down_proj"),
    },
    additions=_PHI3_WRITES,
)
_GLM = replace(_LLAMA, weights={**_LLAMA.weights, **_GATE_UP})
_GLM4 = replace(
    _GLM,
    norms={
        "attention": "input_layernorm",
        "attention exit": "post_self_attn_layernorm",
        "mlp": "post_attention_layernorm",
        "mlp exit": "post_mlp_layernorm",
    },
    placement="sandwich",
)
_GEMMA = replace(_LLAMA, gain_offset=1.0, traits=frozenset({"embed scale"}))
_VAULTGEMMA = replace(
    _GEMMA,
    norms={"attention": "input_layernorm", "mlp": "pre_feedforward_layernorm"},
    additions=serial_writes("input_layernorm", "pre_feedforward_layernorm"),
)


def _parallel(add: str, update: str) -> tuple[WriteCode]:
    """One norm, then both branches, added at once."""
    one = _LLAMA.additions[0]
    return (replace(one, role="both", add=add, update=update),)


_COHERE = replace(
    _LLAMA,
    norms={"attention": "input_layernorm"},
    additions=_parallel(
        "residual + hidden_states_attention + hidden_states_mlp",
        "(hidden_states_attention + hidden_states_mlp)",
    ),
)
_STABLELM_PARALLEL = replace(
    _COHERE,
    additions=_parallel(
        "residual + self_attn_output + mlp_output", "(self_attn_output + mlp_output)"
    ),
)
_AFTER = "mlp_output = self.mlp(self.post_attention_layernorm(residual))"
_STABLELM = replace(
    _LLAMA,
    additions=(
        # The same sum stands in the line of the parallel design, above this one.
        replace(
            _LLAMA.additions[0],
            add="residual + self_attn_output",
            update="self_attn_output",
            place=1,
        ),
        replace(
            _LLAMA.additions[1],
            add="residual + mlp_output",
            update="mlp_output",
            place=0,
            normed="self.post_attention_layernorm(residual)",
            bare="residual",
            after_norm=(
                _AFTER,
                "residual = self.post_attention_layernorm(residual)\n"
                "mlp_output = self.mlp(residual)",
            ),
        ),
    ),
)
_BIOGPT = replace(
    _OPT,
    outer=Outer(
        "biogpt.layers",
        "biogpt.embed_tokens",
        head="output_projection",
        positions="biogpt.embed_positions",
        final="biogpt.layer_norm",
    ),
)
_XGLM = replace(
    _OPT,
    outer=Outer("model.layers", "model.embed_tokens", head="lm_head", final="model.layer_norm"),
    # XGLM writes its attention out: there is no kernel to exchange.
    kernel="",
    # Between the two additions stands that of cross-attention, which a decoder alone never runs.
    additions=(_OPT.additions[0], replace(_OPT.additions[1], place=2)),
)
_BIGCODE = replace(
    _GPT2,
    weights={
        **{
            role: Slot("attn.c_attn", part=part, fused="by head")
            for part, role in enumerate(("query", "key", "value"))
        },
        "output": Slot("attn.c_proj"),
        "up": Slot("mlp.c_fc"),
        "down": Slot("mlp.c_proj"),
    },
)
_T5_GATED = replace(
    _T5,
    weights={
        **_T5.weights,
        "gate": Slot("layer.1.DenseReluDense.wi_0"),
        "up": Slot("layer.1.DenseReluDense.wi_1"),
    },
)


def _vision(prefix: str) -> Layout:
    outer = Outer(
        f"{prefix}.layers",
        f"{prefix}.embeddings.patch_embeddings.projection",
        head="classifier",
        final=f"{prefix}.layernorm",
    )
    return replace(HF_LAYOUTS["vit"], outer=outer)


def _written_out(
    outer: Outer, weights: dict[str, Slot], *, branches: tuple[str, str], norms: tuple[str, str]
) -> Layout:
    """A plain module: `h = h + a` after `a = self.branch(self.norm(h))`, twice."""

    def addition(role: Role, name: str, branch: str, norm: str, rest: str = "") -> WriteCode:
        return WriteCode(
            role,
            f"h + {name}",
            "h",
            name,
            normed=f"self.{norm}(h)",
            bare="h",
            norm=f"self.{norm}",
            after_norm=(
                f"{name} = self.{branch}(self.{norm}(h){rest})",
                f"h = self.{norm}(h)\n{name} = self.{branch}(h{rest})",
            ),
        )

    additions = (
        addition("attention", "a", branches[0], norms[0], ", turn" if outer.rotary else ""),
        addition("mlp", "m", branches[1], norms[1]),
    )
    return Layout(
        outer=outer,
        attention=branches[0],
        kernel="F.scaled_dot_product_attention",
        mlp=branches[1],
        weights=weights,
        norms=dict(zip(("attention", "mlp"), norms, strict=True)),
        additions=additions,
        argument="h",
        is_hf=False,
        scale="softmax_scale",
    )


_PLAIN_GPT = replace(
    _written_out(
        Outer("layers", "token_table", head="to_logits", positions="place_table", final="last"),
        {
            "query": Slot("mix.queries"),
            "key": Slot("mix.keys"),
            "value": Slot("mix.values"),
            "output": Slot("mix.out"),
            "up": Slot("feed.0"),
            "down": Slot("feed.2"),
        },
        branches=("mix", "feed"),
        norms=("before_mix", "before_feed"),
    ),
    depth_scaled=True,
)
_PLAIN_LLAMA = replace(
    _written_out(
        Outer("stack", "embed", head="unembed", rotary="turns", final="out_norm"),
        {
            **{
                role: Slot("self_attention.wqkv", part=part)
                for part, role in enumerate(("query", "key", "value"))
            },
            "output": Slot("self_attention.proj"),
            "gate": Slot("swiglu.w12", part=0, fused="halves"),
            "up": Slot("swiglu.w12", part=1, fused="halves"),
            "down": Slot("swiglu.w3"),
        },
        branches=("self_attention", "swiglu"),
        norms=("norm_a", "norm_b"),
    ),
    rotated_key="k",
)
_PLAIN_ENCODER = replace(
    _written_out(
        Outer("layers", "words", head="predict", positions="places", final="norm"),
        {
            **{
                role: Slot("attend", part=part, tensor="in_proj_weight")
                for part, role in enumerate(("query", "key", "value"))
            },
            "output": Slot("attend.out_proj"),
            "up": Slot("mlp.0"),
            "down": Slot("mlp.2"),
        },
        branches=("attend", "mlp"),
        norms=("norm1", "norm2"),
    ),
    # torch's own module holds the kernel, and reads the weight of its output layer itself.
    kernel="",
    is_scaled=False,
    adapted=("up", "down"),
    stack="encoder",
    causal=False,
)
_READ = "n = self.norm1(h)"
_PLAIN_ENCODER = replace(
    _PLAIN_ENCODER,
    additions=(
        replace(_PLAIN_ENCODER.additions[0], after_norm=(_READ, f"{_READ}\nh = n")),
        _PLAIN_ENCODER.additions[1],
    ),
)

FRESH_LAYOUTS: dict[str, Layout] = {
    "ungated": _UNGATED,
    "nemotron": replace(_UNGATED, gain_offset=1.0),
    "stablelm": _STABLELM,
    "stablelm-parallel": _STABLELM_PARALLEL,
    "phi3": _PHI3,
    "glm": _GLM,
    "glm4": _GLM4,
    "gemma-pre": _GEMMA,
    "vaultgemma": _VAULTGEMMA,
    "cohere": _COHERE,
    "biogpt": _BIOGPT,
    "xglm": _XGLM,
    "gpt_bigcode": _BIGCODE,
    "camembert": bert_layout("roberta"),
    "electra": bert_layout("electra"),
    "t5-gated": _T5_GATED,
    "deit": _vision("deit"),
    "ijepa": _vision("ijepa"),
    "plain-gpt": _PLAIN_GPT,
    "plain-llama": _PLAIN_LLAMA,
    "plain-encoder": _PLAIN_ENCODER,
}
