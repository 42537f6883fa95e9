"""The layouts of models that Leadline builds itself: from recipes, and the plain ones beside this."""

from __future__ import annotations

from typing import Literal

from leadline.testing.faults.hosts.layout import Layout, Outer, Slot, WriteCode

__all__ = ["OWN_LAYOUTS"]


def _ours(placement: Literal["pre", "post", "sandwich"], *, gated: bool = False) -> Layout:
    def addition(role: Literal["attention", "mlp"]) -> WriteCode:
        update = "u if exit_ is None else exit_(u)"
        enters = placement != "post"
        return WriteCode(
            role,
            f"connection.write(state, {update})",
            "state",
            f"({update})",
            owner=role,
            normed="x if enter is None else enter(x)"
            if enters
            else "state if settle is None else connection.settle(state, settle)",
            bare="x" if enters else "state",
            norm="enter" if enters else "settle",
            after_norm=(
                "x: Tensor = connection.read(state)",
                "x = state = enter(connection.read(state))\nenter = None",
            )
            if enters
            else None,
        )

    inner = {
        "pre": {"attention": "attention.enter", "mlp": "mlp.enter"},
        "post": {"attention": "attention.settle", "mlp": "mlp.settle"},
        "sandwich": {
            "attention": "attention.enter",
            "attention exit": "attention.exit",
            "mlp": "mlp.enter",
            "mlp exit": "mlp.exit",
        },
    }
    up = {"up": Slot("mlp.branch.gate_up" if gated else "mlp.branch.up")}
    return Layout(
        outer=Outer(
            "blocks",
            "embedding.tokens",
            head="head.projection",
            positions="" if gated else "embedding.positions.table",
            rotary="embedding.positions" if gated else "",
            final="" if placement == "post" else "norm",
        ),
        attention="attention.branch",
        kernel="F.scaled_dot_product_attention",
        mlp="mlp.branch",
        weights={
            **{
                role: Slot("attention.branch.qkv", part=i, fused="grouped")
                for i, role in enumerate(("query", "key", "value"))
            },
            "output": Slot("attention.branch.output"),
            **up,
            "down": Slot("mlp.branch.down"),
        },
        norms=inner[placement],
        additions=(addition("attention"), addition("mlp")),
        argument="state",
        placement=placement,
        is_hf=False,
        scale="scale",
        traits=frozenset({"recipe"}),
    )


def _nano(
    outer: Outer, weights: dict[str, Slot], *, depth_scaled: bool, rotated_key: str = ""
) -> Layout:
    def addition(role: Literal["attention", "mlp"], name: str, norm: str) -> WriteCode:
        update = f"self.{name}(self.{norm}(x))"
        if outer.rotary and role == "attention":
            update = f"self.{name}(self.{norm}(x), cos, sin)"
        return WriteCode(
            role,
            f"x + {update}",
            "x",
            update,
            normed=f"self.{norm}(x)",
            bare="x",
            norm=f"self.{norm}",
            after_norm=(
                f"x = x + {update}",
                f"x = self.{norm}(x)\nx = x + {update.replace(f'self.{norm}(x)', 'x')}",
            ),
        )

    norms = {"attention": "ln_1", "mlp": "ln_2"}
    return Layout(
        outer=outer,
        attention="attn",
        kernel="F.scaled_dot_product_attention",
        mlp="mlp",
        weights=weights,
        norms=norms,
        additions=(addition("attention", "attn", "ln_1"), addition("mlp", "mlp", "ln_2")),
        argument="x",
        is_hf=False,
        scale="scale",
        depth_scaled=depth_scaled,
        rotated_key=rotated_key,
    )


_NANO_GPT = _nano(
    Outer("blocks", "wte", head="lm_head", positions="wpe", final="ln_f"),
    {
        **{role: Slot("attn.c_attn", part=i) for i, role in enumerate(("query", "key", "value"))},
        "output": Slot("attn.c_proj"),
        "up": Slot("mlp.c_fc"),
        "down": Slot("mlp.c_proj"),
    },
    depth_scaled=True,
)
_NANO_LLAMA = _nano(
    Outer("layers", "tok_embeddings", head="output", rotary="rope", final="norm"),
    {
        **{role: Slot(f"attn.w{role[0]}") for role in ("query", "key", "value")},
        "output": Slot("attn.wo"),
        "up": Slot("mlp.w3"),
        "gate": Slot("mlp.w1"),
        "down": Slot("mlp.w2"),
    },
    depth_scaled=False,
    rotated_key="self.wk(x).view(shape).transpose(1, 2)",
)

OWN_LAYOUTS: dict[str, Layout] = {
    "recipe-pre": _ours("pre"),
    "recipe-post": _ours("post"),
    "recipe-sandwich": _ours("sandwich"),
    "recipe-llama": _ours("pre", gated=True),
    "nano-gpt": _NANO_GPT,
    "nano-llama": _NANO_LLAMA,
}
