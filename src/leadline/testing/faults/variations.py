"""Healthy variations of hosts: odd inputs, the start of a fine-tuning, unusual but sound designs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from leadline.testing.faults.hosts import (
    build_hf,
    build_recipe,
    drawn_inputs,
    host,
    text_inputs,
)
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.hosts.families import VOCABULARY
from leadline.testing.faults.lora import add_lora
from leadline.testing.faults.subject import Subject

__all__ = ["INPUTS", "TUNING", "Variation", "build_variation", "pad", "vary_inputs"]
__all__ += ["vary_model", "with_gains", "zero_output"]

Build = Callable[[int], nn.Module]
Feed = Callable[[nn.Module, int], Any]
Variation = tuple[Build, Feed, tuple[str, ...]]

FROZEN = ("parameters-frozen",)


def build_variation(kind: str, name: str) -> Variation:
    """What builds a variation, what feeds it, and which notes are right about it."""
    if kind == "design":
        return _DESIGNS[name]
    table: dict[str, Any] = INPUTS if kind == "inputs" else TUNING
    words = next(one for one in table if name.startswith(one))
    healthy = host(name.removeprefix(words).removeprefix("-"))
    return table[words](healthy)


# --- inputs -----------------------------------------------------------------------------------


def vary_inputs(change: Callable[[Tensor], dict[str, Tensor]]) -> Callable[[Host], Variation]:
    """The host with its ids changed."""

    def vary(healthy: Host) -> Variation:
        def feed(model: nn.Module, seed: int) -> dict[str, Tensor]:
            return change(healthy.inputs(model, seed).main)

        return healthy.build, feed, ()

    return vary


def pad(ids: Tensor, *, left: bool) -> dict[str, Tensor]:
    """Examples of four lengths, filled with the id 0 on one side."""
    mask = torch.ones_like(ids)
    for example in range(len(ids)):
        hidden = 4 * example
        mask[example, :hidden] = 0
    if not left:
        mask = mask.flip(1)
    return {"input_ids": ids * mask, "attention_mask": mask}


def _long_text(healthy: Host) -> Variation:
    def feed(_model: nn.Module, seed: int) -> Any:
        from leadline.lab.tasks.stdlib import StandardLibrary
        from leadline.models.inputs import Inputs

        ids = StandardLibrary(length=128).validation(64).ids
        return Inputs({"input_ids": ids[seed % 32 :][:2]}, kind="text", made=True)

    return healthy.build, feed, ()


def _short_text(healthy: Host) -> Variation:
    def feed(model: nn.Module, seed: int) -> Any:
        from leadline.models.inputs import Inputs

        ids = text_inputs(model, seed).main[:, :8]
        return Inputs({"input_ids": ids}, kind="text", made=True)

    return healthy.build, feed, ()


INPUTS: dict[str, Callable[[Host], Variation]] = {
    "one-token-repeated": vary_inputs(lambda ids: {"input_ids": torch.full_like(ids, 97)}),
    "one-example": vary_inputs(lambda ids: {"input_ids": ids[:1]}),
    "two-tokens": vary_inputs(lambda ids: {"input_ids": ids[:, :2]}),
    "padded-batch": vary_inputs(lambda ids: pad(ids, left=False)),
    "left-padded": vary_inputs(lambda ids: pad(ids, left=True)),
    "long-text": _long_text,
    "short-text": _short_text,
    "random-tokens": lambda healthy: (healthy.build, drawn_inputs, ()),
}


# --- fine-tuning ------------------------------------------------------------------------------


def vary_model(
    change: Callable[[nn.Module, Host], None], *notes: str
) -> Callable[[Host], Variation]:
    """The host with something changed after it was built."""

    def vary(healthy: Host) -> Variation:
        def build(seed: int) -> nn.Module:
            model = healthy.build(seed)
            change(model, healthy)
            return model

        return build, healthy.inputs, notes

    return vary


def _adapt(model: nn.Module, healthy: Host) -> None:
    add_lora(model, healthy, generator=torch.Generator().manual_seed(0))


def _freeze_lower(model: nn.Module, healthy: Host) -> None:
    outer = healthy.layout.outer
    blocks = list(model.get_submodule(outer.blocks).children())
    for module in [model.get_submodule(outer.embedding), *blocks[: len(blocks) // 2]]:
        module.requires_grad_(False)


def _freeze_embedding(model: nn.Module, healthy: Host) -> None:
    model.get_submodule(healthy.layout.outer.embedding).requires_grad_(False)


def _freeze_all_but_last(model: nn.Module, healthy: Host) -> None:
    model.requires_grad_(False)
    outer = healthy.layout.outer
    blocks = list(model.get_submodule(outer.blocks).children())
    for module in [*blocks[-2:], model.get_submodule(outer.head)]:
        module.requires_grad_(True)


def _drop_out(model: nn.Module, _healthy: Host) -> None:
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
        elif isinstance(getattr(module, "dropout", None), float):  # OPT calls F.dropout
            module.dropout = 0.1
    model.eval()


TUNING: dict[str, Callable[[Host], Variation]] = {
    "lora-at-start": vary_model(_adapt, *FROZEN),
    "frozen-lower-layers": vary_model(_freeze_lower, *FROZEN),
    "frozen-embedding": vary_model(_freeze_embedding, *FROZEN),
    "last-layers-only": vary_model(_freeze_all_but_last, *FROZEN),
    "dropout": vary_model(_drop_out),
}


# --- designs ----------------------------------------------------------------------------------


def _with_settings(family: str, **settings: Any) -> Variation:
    return (lambda seed: build_hf(family, seed, **settings)), drawn_inputs, ()


def _with_fields(**fields: Any) -> Variation:
    return (lambda seed: build_recipe(fields, seed)), drawn_inputs, ()


def zero_output(family: str) -> Variation:
    """Every branch starts by writing nothing: its last matrix is zero in all layers."""

    def build(seed: int) -> nn.Module:
        healthy = host(family)
        subject = Subject(healthy.build(seed), healthy, seed, fault="")
        for layer in subject.layers:
            for role in ("output", "down"):
                subject.weight(layer, role).zero_()
        return subject.model

    return build, drawn_inputs, ()


def with_gains(family: str, start: float, size: int) -> Variation:
    """Every update is multiplied by a learned gain that starts at or near zero."""

    def build(seed: int) -> nn.Module:
        healthy = host(family)
        subject = Subject(healthy.build(seed), healthy, seed, fault="")
        for layer in subject.layers:
            for one in reversed(healthy.layout.additions):
                name = f"{one.role}_gain"
                gain = nn.Parameter(torch.full((size,), start))
                subject.block(layer).register_parameter(name, gain)
                subject.edit(layer, one.role, f"{{stream}} + self.{name} * {{update}}")
        return subject.model

    return build, drawn_inputs, ()


def _cast(family: str, dtype: torch.dtype) -> Variation:
    return (lambda seed: host(family).build(seed).to(dtype)), drawn_inputs, ()


def _build_albert(seed: int) -> nn.Module:
    """Six layers that are one module by design."""
    import transformers

    config = transformers.AlbertConfig(
        vocab_size=VOCABULARY,
        embedding_size=64,
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=160,
        max_position_embeddings=160,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.AlbertForMaskedLM(config).eval()


class _TorchEncoder(nn.Module):
    """torch's own encoder between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 64)
        self.positions = nn.Parameter(torch.randn(160, 64))
        layer = nn.TransformerEncoderLayer(
            64, 4, dim_feedforward=160, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        # The encoder copies one layer six times; each is drawn anew, as torch's manual advises.
        for parameter in self.encoder.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        return self.head(self.norm(self.encoder(x)))


def _build_torch_encoder(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _TorchEncoder().eval()


_DESIGNS: dict[str, Variation] = {
    "zero-output-llama": zero_output("llama"),
    "zero-output-gpt2": zero_output("gpt2"),
    "zero-gain-gpt2": with_gains("gpt2", 0.0, 1),
    "zero-layer-scale-vit": with_gains("vit", 1e-5, 64),
    "tied-llama": _with_settings("llama", tie_word_embeddings=True),
    "untied-gpt2": _with_settings("gpt2", tie_word_embeddings=False),
    "deep-gpt2": _with_settings("gpt2", n_layer=24),
    "deep-llama": _with_settings("llama", num_hidden_layers=24),
    "deep-recipe-pre": _with_fields(depth=24),
    "wide-gpt2": _with_settings("gpt2", n_embd=256),
    "one-layer-gpt2": _with_settings("gpt2", n_layer=1),
    "two-layers-llama": _with_settings("llama", num_hidden_layers=2),
    "one-head-gpt2": _with_settings("gpt2", n_head=1),
    "bfloat16-llama": _cast("llama", torch.bfloat16),
    "float64-gpt2": _cast("gpt2", torch.float64),
    "eager-gpt2": _with_settings("gpt2", attn_implementation="eager"),
    "window-mistral": _with_settings("mistral", sliding_window=8),
    "shared-layers-albert": (_build_albert, drawn_inputs, ()),
    "no-positions-recipe": _with_fields(positions="none"),
    "torch-encoder": (_build_torch_encoder, drawn_inputs, ()),
}
