"""Are GPT and BERT almost all Pre-LN?

The note says of Pre-LN that GPT and BERT almost all use it now. Placements are read from model
types of Hugging Face: eleven of BERT's family, six named after GPT (without GPT-1, which is older
than the sentence means). "Almost all" is nine in ten of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._placements import BERT_FAMILY, GPT_FAMILY, PLACEMENTS_OF, share


@claim(
    "gpt-and-bert-pre-norm",
    group="norms",
    notes=("shortcuts",),
    title="GPT and BERT almost all use Pre-LN",
    formula=r"x_{l+1} = x_l + F(LN(x_l))",
    plain="GPT, BERT: x + F(LN(x))",
    says="Pre-LN is what almost all GPT and BERT models use today.",
    correction="GPT uses Pre-LN from GPT-2 on; GPT-1 is Post-LN. BERT is Post-LN, and so are the "
    "models made after it: RoBERTa, ALBERT, ELECTRA, DeBERTa.",
    why="The place of the norms was read from tiny models with random weights, and proved by "
    "adding up what every layer writes. Of {bert_types:.0f} types of BERT's family the share with "
    "Pre-LN is {bert_share:.2f}: the norm stands after the addition. Of {gpt_types:.0f} types "
    "named after GPT it is {gpt_share:.2f}. Newer encoders such as ModernBERT have moved to "
    "Pre-LN, and they are not BERT.",
    checks=(
        Check(
            "gpt_share", "claim", "at least", 0.9,
            label="share of Pre-LN among types named after GPT, from GPT-2 on",
            because="Almost all: nine in ten.",
        ),
        Check(
            "bert_share", "claim", "at least", 0.9,
            label="share of Pre-LN in BERT's family",
            because="Almost all: nine in ten.",
        ),
        Check(
            "bert_post", "correction", "at least", 0.9,
            label="share of Post-LN in BERT's family",
            because="Almost all: nine in ten.",
        ),
        Check(
            "gpt1_post", "correction", "at least", 1.0,
            label="GPT-1 is Post-LN (1 is yes)",
            because="One model: yes or no.",
        ),
    ),
    source="Devlin et al. 2018, arXiv 1810.04805 (BERT)",
    seconds=0.01,
    seeded=False,
    needs=(PLACEMENTS_OF,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Shares of placements in two families."""
    found = trials[PLACEMENTS_OF.name]["placements"]
    return Measured(
        {
            "gpt_types": float(len(GPT_FAMILY)),
            "bert_types": float(len(BERT_FAMILY)),
            "gpt_share": share(found, GPT_FAMILY, placements=("pre",)),
            "bert_share": share(found, BERT_FAMILY, placements=("pre",)),
            "bert_post": share(found, BERT_FAMILY, placements=("post",)),
            "gpt1_post": share(found, ("openai-gpt",), placements=("post",)),
        }
    )
