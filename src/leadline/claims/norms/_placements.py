"""Where the norms stand in model types of Hugging Face, read from tiny models with random weights.

The models are those of `leadline.testing.zoo`; their anatomies are found and proved by the balance
equation, and the placement is what the tensors show, not what a name says. Nothing is drawn that
a verdict depends on, so one reading is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["BERT_FAMILY", "GPT_FAMILY", "PLACEMENTS_OF", "placements_of", "share"]

BERT_FAMILY = (
    "bert", "roberta", "camembert", "xlm-roberta", "electra", "distilbert", "albert", "deberta",
    "deberta-v2", "mpnet", "ernie",
)  # fmt: skip
GPT_FAMILY = ("gpt2", "gpt_bigcode", "gpt_neo", "gptj", "gpt_neox", "gpt_oss")
"""The types named after GPT, but for the first of them."""
OTHERS = ("openai-gpt", "t5")


def run(seed: int) -> dict[str, Any]:
    """The placements of every decoder of the zoo, of BERT's family, of GPT-1 and of T5."""
    from leadline.testing.zoo import specimens

    decoders = [specimen.name for specimen in specimens(kind="decoder")]
    names = tuple(dict.fromkeys((*decoders, *BERT_FAMILY, *GPT_FAMILY, *OTHERS)))
    placements = placements_of(names, seed=seed)
    refused = [name for name in names if name not in placements]
    return {"placements": placements, "decoders": decoders, "refused": refused}


def placements_of(names: Sequence[str], *, seed: int) -> dict[str, list[str]]:
    """The placement of every write of these types; those that have no proved anatomy are left out."""
    import torch

    from leadline.anatomy import read_anatomy, untouched
    from leadline.errors import AnatomyError
    from leadline.instruments.passes.running import call
    from leadline.models.inputs import as_inputs
    from leadline.testing.zoo import ZOO

    placements: dict[str, list[str]] = {}
    with _quiet(), torch.random.fork_rng(devices=[]):
        for name in names:
            specimen = ZOO[name]
            model = specimen.build(seed).eval()
            fit, fresh = (as_inputs(specimen.inputs(model, at), model) for at in (1, 2))
            try:
                with untouched(model):
                    found = read_anatomy(
                        model,
                        lambda m=model, i=fit: call(m, i),
                        lambda m=model, i=fresh: call(m, i),
                    )
            except AnatomyError:
                continue
            placements[name] = [
                sublayer.placement
                for stack in found.stacks
                for block in stack.blocks
                for sublayer in block.sublayers
            ]
    return placements


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what transformers says about tiny configurations."""
    from leadline.errors import require

    transformers: Any = require("transformers", extra="hf")
    logging = transformers.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


PLACEMENTS_OF = Trial("norms-placements", run, seconds=8.0)


def share(
    found: Mapping[str, Sequence[str]], names: Sequence[str], *, placements: tuple[str, ...]
) -> float:
    """Of these types, the share whose every write has one of these placements."""
    fitting = [name for name in names if set(found[name]) <= set(placements)]
    return len(fitting) / len(names)
