"""What published families look like: where norms stand, which norm, parallel or not, what is scaled.

Each entry is a fact of the family's paper or released code; `sources` names it. A test builds a tiny
model of every family here and compares it with its entry, and our own recipes too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["DESIGNS", "FamilyDesign", "design_of"]

Norm = Literal["layernorm", "rmsnorm"]


@dataclass(frozen=True)
class FamilyDesign:
    """What a family promises; None where it does not say or a setting decides.

    `parallel_setting` and `gain_setting` name the field of the configuration that decides whether
    branches are parallel, and by what an update is multiplied.
    """

    source: str
    placement: str | None = None
    norm: Norm | None = None
    causal: bool | None = None
    parallel: bool | None = False
    final_norm: bool | None = True
    tied: bool | None = None
    parallel_setting: str = ""
    gain_setting: str = ""


_PRE = FamilyDesign("", "pre", "layernorm", True)
_LLAMA = FamilyDesign("Touvron et al. 2023, arXiv 2302.13971", "pre", "rmsnorm", True)
_BERT = FamilyDesign(
    "Devlin et al. 2018, arXiv 1810.04805", "post", "layernorm", False, final_norm=None
)
_SANDWICH = FamilyDesign("Gemma team 2024, arXiv 2408.00118", "sandwich", "rmsnorm", True)
_OLMO = FamilyDesign("OLMo team 2025, arXiv 2501.00656", "output", "rmsnorm", True)

DESIGNS: dict[str, FamilyDesign] = {
    "gpt2": replace(_PRE, source="Radford et al. 2019, Language Models are Unsupervised Multitask Learners"),
    "gpt_neo": replace(_PRE, source="Black et al. 2021, GPT-Neo"),
    "bloom": replace(_PRE, source="BigScience 2022, arXiv 2211.05100"),
    "mpt": replace(_PRE, source="MosaicML 2023, MPT-7B"),
    "xglm": replace(_PRE, source="Lin et al. 2021, arXiv 2112.10668"),
    "biogpt": replace(_PRE, source="Luo et al. 2022, arXiv 2210.10341"),
    "starcoder2": replace(_PRE, source="Lozhkov et al. 2024, arXiv 2402.19173"),
    "gpt_bigcode": replace(_PRE, source="Li et al. 2023, arXiv 2305.06161"),
    "gptj": replace(_PRE, source="Wang, Komatsuzaki 2021, GPT-J-6B", parallel=True),
    "codegen": replace(_PRE, source="Nijkamp et al. 2022, arXiv 2203.13474", parallel=True),
    "phi": replace(_PRE, source="Li et al. 2023, arXiv 2309.05463", parallel=True),
    "gpt_neox": replace(
        _PRE, source="Black et al. 2022, arXiv 2204.06745", parallel=None,
        parallel_setting="use_parallel_residual",
    ),
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, source="Jiang et al. 2023, arXiv 2310.06825"),
    "mixtral": replace(_LLAMA, source="Jiang et al. 2024, arXiv 2401.04088"),
    "qwen2": replace(_LLAMA, source="Qwen team 2024, arXiv 2407.10671"),
    "qwen3": replace(_LLAMA, source="Qwen team 2025, arXiv 2505.09388"),
    "phi3": replace(_LLAMA, source="Abdin et al. 2024, arXiv 2404.14219"),
    "gemma": replace(_LLAMA, source="Gemma team 2024, arXiv 2403.08295"),
    "smollm3": replace(_LLAMA, source="Hugging Face 2025, SmolLM3"),
    "deepseek_v3": replace(_LLAMA, source="DeepSeek-AI 2024, arXiv 2412.19437"),
    "granite": replace(
        _LLAMA, source="IBM 2024, Granite 3.0 language models", gain_setting="residual_multiplier"
    ),
    "gemma2": _SANDWICH,
    "gemma3_text": replace(_SANDWICH, source="Gemma team 2025, arXiv 2503.19786"),
    "glm4": replace(_SANDWICH, source="Z.ai 2025, GLM-4-0414"),
    "olmo2": _OLMO,
    "olmo3": replace(_OLMO, source="OLMo team 2025, OLMo 3"),
    "openai-gpt": FamilyDesign(
        "Radford et al. 2018, Improving Language Understanding by Generative Pre-Training",
        "post", "layernorm", True, final_norm=None,
    ),
    "bert": _BERT,
    "roberta": replace(_BERT, source="Liu et al. 2019, arXiv 1907.11692"),
    "electra": replace(_BERT, source="Clark et al. 2020, arXiv 2003.10555"),
    "distilbert": replace(_BERT, source="Sanh et al. 2019, arXiv 1910.01108"),
    "albert": replace(_BERT, source="Lan et al. 2019, arXiv 1909.11942"),
    "t5": FamilyDesign("Raffel et al. 2019, arXiv 1910.10683", "pre", "rmsnorm", None),
    "vit": FamilyDesign("Dosovitskiy et al. 2020, arXiv 2010.11929", "pre", "layernorm", False),
}  # fmt: skip
"""By the `model_type` of a configuration."""

_ALIASES = {
    "gpt1": "openai-gpt",
    "gpt": "openai-gpt",
    "gpt-2": "gpt2",
    "gpt-j": "gptj",
    "gpt-neox": "gpt_neox",
    "llama2": "llama",
    "llama3": "llama",
    "pythia": "gpt_neox",
    "smollm2": "llama",
    "gemma3": "gemma3_text",
}


def design_of(name: str) -> FamilyDesign | None:
    """The design of a family by its model type, a recipe's name or a usual spelling.

    A size behind the name is left off: `gpt2-medium`, `pythia-160m`.
    """
    words = name.strip().lower().split("-")
    for count in range(len(words), 0, -1):
        lowered = "-".join(words[:count])
        for spelling in (_ALIASES.get(lowered, lowered), lowered.replace("-", "_")):
            if spelling in DESIGNS:
                return DESIGNS[spelling]
    return None
