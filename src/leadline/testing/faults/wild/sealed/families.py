"""Sealed wild faults in models of Hugging Face families."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from leadline.testing.faults.wild.case import WildFault, wild_fault
from leadline.testing.faults.wild.modules import DEPTH, HEADS, VOCABULARY, WIDTH, pair_ids

__all__ = ["FAMILY_FAULTS"]

FAMILY_FAULTS: list[WildFault] = []

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


@wild_fault(
    FAMILY_FAULTS,
    "mlc-ai/mlc-llm#3426",
    "The fallback of the attention kernel is called with scale 1 instead of 1 / sqrt(head width).",
    ("attention-scale-wrong",),
    sublayer="attention",
)
def fallback_without_scale(repaired: bool) -> nn.Module:
    """BERT, whose encoder took the fallback."""
    from transformers import BertConfig, BertForMaskedLM
    from transformers.models.bert.modeling_bert import BertSelfAttention

    model = BertForMaskedLM(BertConfig(**_SIZES, initializer_range=0.08))
    if not repaired:
        for module in model.modules():
            if isinstance(module, BertSelfAttention):
                module.scaling = 1.0
    return model


@wild_fault(
    FAMILY_FAULTS,
    "huggingface/transformers#26441",
    "The output head is drawn with variance 1, so logits have the variance of the width and the first loss is ten times too large.",
    ("output-head-too-large", "loss-worse-than-uniform"),
    parameter="lm_head.weight",
    feed=pair_ids,
)
def head_of_unit_variance(repaired: bool) -> nn.Module:
    """T5 1.1, whose head is not tied to the embedding."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "d_kv": WIDTH // HEADS,
        "d_ff": 2 * WIDTH,
        "num_layers": DEPTH,
        "num_heads": HEADS,
        "tie_word_embeddings": False,
    }
    model = T5ForConditionalGeneration(T5Config(**sizes, feed_forward_proj="gated-gelu"))
    nn.init.normal_(model.lm_head.weight, std=WIDTH**-0.5 if repaired else 1.0)
    return model


@wild_fault(
    FAMILY_FAULTS,
    "AnswerDotAI/ModernBERT#96",
    "Resizing the vocabulary draws the embedding by the wrong function, and the first loss is ten times too large.",
    ("embedding-scale-wrong", "output-head-too-large", "loss-worse-than-uniform"),
    parameter="model.embeddings.tok_embeddings.weight",
)
def resized_embedding_of_unit_variance(repaired: bool) -> nn.Module:
    """ModernBERT, whose head is tied to the embedding."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    model = ModernBertForMaskedLM(ModernBertConfig(**_SIZES, cls_token_id=1, sep_token_id=2))
    if not repaired:
        nn.init.normal_(model.model.embeddings.tok_embeddings.weight)
    return model


@wild_fault(
    FAMILY_FAULTS,
    "foundation-model-stack/foundation-model-stack#93",
    "The adapter does not pass on that the head is tied to the embedding, so a loaded model gets a fresh head.",
    ("tying-broken",),
    parameter="lm_head.weight",
)
def head_untied_by_the_adapter(repaired: bool) -> nn.Module:
    """GPT-BigCode, whose configuration ties the two."""
    with warnings.catch_warnings():
        # The file of this family scripts a function as it is imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    model = GPTBigCodeForCausalLM(
        GPTBigCodeConfig(
            vocab_size=VOCABULARY,
            n_embd=WIDTH,
            n_layer=DEPTH,
            n_head=HEADS,
            n_positions=64,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    fresh = torch.randn(VOCABULARY, WIDTH) * 0.02
    if not repaired:
        model.lm_head.weight = nn.Parameter(fresh)
    return model


@wild_fault(
    FAMILY_FAULTS,
    "pie-project/pie#603",
    "Frequencies of a partial rotary embedding are spread over the width of the head instead of the part that rotates.",
    ("buffer-wrong", "positions-wrong", "parts-from-reference"),
    parameter="gpt_neox.rotary_emb.inv_freq",
)
def partial_rotary_over_the_head(repaired: bool) -> nn.Module:
    """GPT-NeoX with a quarter of every head rotated."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {**_SIZES, "hidden_size": 64, "num_attention_heads": 2, "rotary_pct": 0.25}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, initializer_range=0.08))
    frequencies = model.gpt_neox.rotary_emb.inv_freq
    if not repaired:
        frequencies.copy_(10000.0 ** (-2 * torch.arange(len(frequencies)) / 32))
    return model
