"""The layouts of Hugging Face families."""

from __future__ import annotations

from dataclasses import replace

from leadline.testing.faults.hosts.layout import Layout, Outer, Role, Slot, WriteCode

__all__ = ["HF_LAYOUTS", "bert_layout", "serial_writes"]


def _statement(norm: str) -> tuple[str, str]:
    """The line that norms, and the same line with the stream saved after it instead of before."""
    line = f"hidden_states = self.{norm}(hidden_states)"
    return line, f"{line}\nresidual = hidden_states"


def _write(role: Role, norm: str, add: str, update: str, place: int = 0) -> WriteCode:
    return WriteCode(
        role=role,
        add=add,
        stream="residual",
        update=update,
        place=place,
        normed=f"self.{norm}(hidden_states)",
        norm=f"self.{norm}",
        after_norm=_statement(norm),
    )


def serial_writes(
    attention_norm: str,
    mlp_norm: str,
    *,
    add: str = "residual + hidden_states",
    update: str = "hidden_states",
) -> tuple[WriteCode, WriteCode]:
    """The usual pre-norm block: save, norm, branch, add, twice, with the same names both times."""
    return (
        _write("attention", attention_norm, add, update),
        _write("mlp", mlp_norm, add, update, place=1),
    )


_SPLIT = {
    "query": Slot("self_attn.q_proj"),
    "key": Slot("self_attn.k_proj"),
    "value": Slot("self_attn.v_proj"),
    "output": Slot("self_attn.o_proj"),
}
_GATED = {"up": Slot("mlp.up_proj"), "gate": Slot("mlp.gate_proj"), "down": Slot("mlp.down_proj")}
_HF = "attention_interface"

_GPT2 = Layout(
    outer=Outer(
        "transformer.h",
        "transformer.wte",
        head="lm_head",
        positions="transformer.wpe",
        final="transformer.ln_f",
    ),
    attention="attn",
    kernel=_HF,
    mlp="mlp",
    weights={
        **{
            role: Slot("attn.c_attn", part=i, turned=True)
            for i, role in enumerate(("query", "key", "value"))
        },
        "output": Slot("attn.c_proj", turned=True),
        "up": Slot("mlp.c_fc", turned=True),
        "down": Slot("mlp.c_proj", turned=True),
    },
    norms={"attention": "ln_1", "mlp": "ln_2"},
    additions=(
        _write("attention", "ln_1", "attn_output + residual", "attn_output"),
        _write(
            "mlp",
            "ln_2",
            "residual + feed_forward_hidden_states",
            "feed_forward_hidden_states",
        ),
    ),
    depth_scaled=True,
)

_LLAMA = Layout(
    outer=Outer(
        "model.layers",
        "model.embed_tokens",
        head="lm_head",
        rotary="model.rotary_emb",
        final="model.norm",
    ),
    attention="self_attn",
    kernel=_HF,
    mlp="mlp",
    weights={**_SPLIT, **_GATED},
    norms={"attention": "input_layernorm", "mlp": "post_attention_layernorm"},
    additions=serial_writes("input_layernorm", "post_attention_layernorm"),
)

_GRANITE = replace(
    _LLAMA,
    additions=serial_writes(
        "input_layernorm",
        "post_attention_layernorm",
        add="residual + hidden_states * self.residual_multiplier",
        update="hidden_states * self.residual_multiplier",
    ),
    traits=frozenset({"granite"}),
)

_STARCODER2 = replace(
    _LLAMA, weights={**_SPLIT, "up": Slot("mlp.c_fc"), "down": Slot("mlp.c_proj")}
)

_OLMO2 = replace(
    _LLAMA,
    norms={"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
    additions=tuple(
        # The norm stands on what a branch returns: there is nothing to be saved too late.
        replace(one, after_norm=None)
        for one in serial_writes("post_attention_layernorm", "post_feedforward_layernorm")
    ),
    placement="output",
)

_GEMMA = replace(
    _LLAMA,
    norms={
        "attention": "input_layernorm",
        "attention exit": "post_attention_layernorm",
        "mlp": "pre_feedforward_layernorm",
        "mlp exit": "post_feedforward_layernorm",
    },
    additions=serial_writes("input_layernorm", "pre_feedforward_layernorm"),
    placement="sandwich",
    gain_offset=1.0,
    traits=frozenset({"embed scale"}),
)

_NEOX = Layout(
    outer=Outer(
        "gpt_neox.layers",
        "gpt_neox.embed_in",
        head="lm_head",
        rotary="gpt_neox.rotary_emb",
        final="gpt_neox.final_layer_norm",
    ),
    attention="attention",
    kernel=_HF,
    mlp="mlp",
    weights={
        **{
            role: Slot("attention.query_key_value", part=i, fused="by head")
            for i, role in enumerate(("query", "key", "value"))
        },
        "output": Slot("attention.dense"),
        "up": Slot("mlp.dense_h_to_4h"),
        "down": Slot("mlp.dense_4h_to_h"),
    },
    norms={"attention": "input_layernorm", "mlp": "post_attention_layernorm"},
    additions=(
        WriteCode(
            "both",
            "mlp_output + attn_output + hidden_states",
            "hidden_states",
            "(mlp_output + attn_output)",
            normed="self.input_layernorm(hidden_states)",
            norm="self.input_layernorm",
        ),
    ),
)

_PHI = Layout(
    outer=Outer(
        "model.layers",
        "model.embed_tokens",
        head="lm_head",
        rotary="model.rotary_emb",
        final="model.final_layernorm",
    ),
    attention="self_attn",
    kernel=_HF,
    mlp="mlp",
    weights={
        **_SPLIT,
        "output": Slot("self_attn.dense"),
        "up": Slot("mlp.fc1"),
        "down": Slot("mlp.fc2"),
    },
    norms={"attention": "input_layernorm"},
    additions=(
        WriteCode(
            "both",
            "attn_outputs + feed_forward_hidden_states + residual",
            "residual",
            "(attn_outputs + feed_forward_hidden_states)",
            normed="self.input_layernorm(hidden_states)",
            norm="self.input_layernorm",
            after_norm=_statement("input_layernorm"),
        ),
    ),
)

_OPT = Layout(
    outer=Outer(
        "model.decoder.layers",
        "model.decoder.embed_tokens",
        head="lm_head",
        positions="model.decoder.embed_positions",
        final="model.decoder.final_layer_norm",
    ),
    attention="self_attn",
    kernel=_HF,
    mlp="",
    weights={
        **_SPLIT,
        "output": Slot("self_attn.out_proj"),
        "up": Slot("fc1"),
        "down": Slot("fc2"),
    },
    norms={"attention": "self_attn_layer_norm", "mlp": "final_layer_norm"},
    additions=serial_writes("self_attn_layer_norm", "final_layer_norm"),
)


def bert_layout(prefix: str) -> Layout:
    """The layout of BERT and of the families that share its code; `prefix` names the body."""
    heads = {"bert": "cls.predictions.decoder", "electra": "generator_lm_head"}
    inside = {name: f"attention.self.{name}" for name in ("query", "key", "value")}
    add, stream = "hidden_states + input_tensor", "input_tensor"

    def write(role: Role, owner: str) -> WriteCode:
        return WriteCode(
            role,
            add,
            stream,
            "hidden_states",
            owner=owner,
            normed=f"self.LayerNorm({add})",
            bare=add,
            norm="self.LayerNorm",
        )

    return Layout(
        outer=Outer(
            f"{prefix}.encoder.layer",
            f"{prefix}.embeddings.word_embeddings",
            head=heads.get(prefix, "lm_head.decoder"),
            positions=f"{prefix}.embeddings.position_embeddings",
        ),
        attention="attention.self",
        kernel=_HF,
        mlp="",
        weights={
            **{role: Slot(path) for role, path in inside.items()},
            "output": Slot("attention.output.dense"),
            "up": Slot("intermediate.dense"),
            "down": Slot("output.dense"),
        },
        norms={"attention": "attention.output.LayerNorm", "mlp": "output.LayerNorm"},
        additions=(
            write("attention", "attention.output"),
            write("mlp", "output"),
        ),
        placement="post",
        stack="encoder",
        causal=False,
    )


_T5 = Layout(
    outer=Outer("encoder.block", "shared", head="lm_head", final="encoder.final_layer_norm"),
    attention="layer.0.SelfAttention",
    kernel=_HF,
    mlp="layer.1.DenseReluDense",
    weights={
        **{
            role: Slot(f"layer.0.SelfAttention.{letter}")
            for role, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
        },
        "up": Slot("layer.1.DenseReluDense.wi"),
        "down": Slot("layer.1.DenseReluDense.wo"),
    },
    norms={"attention": "layer.0.layer_norm", "mlp": "layer.1.layer_norm"},
    additions=(
        WriteCode(
            "attention",
            "hidden_states + self.dropout(attention_output)",
            "hidden_states",
            "self.dropout(attention_output)",
            owner="layer.0",
            normed="self.layer_norm(hidden_states)",
            norm="self.layer_norm",
            after_norm=(
                "attention_output = hidden_states + self.dropout(attention_output)",
                "attention_output = normed_hidden_states + self.dropout(attention_output)",
            ),
        ),
        WriteCode(
            "mlp",
            "hidden_states + self.dropout(forwarded_states)",
            "hidden_states",
            "self.dropout(forwarded_states)",
            owner="layer.1",
            normed="self.layer_norm(hidden_states)",
            norm="self.layer_norm",
            after_norm=(
                "forwarded_states = self.layer_norm(hidden_states)",
                "forwarded_states = hidden_states = self.layer_norm(hidden_states)",
            ),
        ),
    ),
    stack="encoder",
    causal=False,
    is_scaled=False,
    # T5 asks its last MLP matrix for the type of its weight.
    adapted=("output", "up"),
)

_VIT = Layout(
    outer=Outer(
        "vit.layers",
        "vit.embeddings.patch_embeddings.projection",
        head="classifier",
        final="vit.layernorm",
    ),
    attention="attention",
    kernel=_HF,
    mlp="mlp",
    weights={
        **{
            role: Slot(f"attention.{letter}_proj")
            for role, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
        },
        "up": Slot("mlp.fc1"),
        "down": Slot("mlp.fc2"),
    },
    norms={"attention": "layernorm_before", "mlp": "layernorm_after"},
    additions=serial_writes("layernorm_before", "layernorm_after", add="hidden_states + residual"),
    stack="encoder",
    causal=False,
)


HF_LAYOUTS: dict[str, Layout] = {
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "granite": _GRANITE,
    "starcoder2": _STARCODER2,
    "olmo2": _OLMO2,
    "gemma": _GEMMA,
    "gpt_neox": _NEOX,
    "phi": _PHI,
    "opt": _OPT,
    "bert": bert_layout("bert"),
    "roberta": bert_layout("roberta"),
    "t5": _T5,
    "vit": _VIT,
}
