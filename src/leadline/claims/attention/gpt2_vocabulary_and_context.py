"""GPT-2: a vocabulary of 50257, a context of 1024 where GPT-1 has 512.

Read from the configurations that Hugging Face starts both families from, which are those of the
released models, and from Leadline's own recipes. Radford et al. 2019.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

COUNT = "A whole number, so it is met exactly or not at all."


@claim(
    "gpt2-vocabulary-and-context",
    group="attention",
    notes=("deep-dive",),
    title="GPT-2 has 50257 tokens and a context of 1024 where GPT-1 has 512",
    formula="",
    plain="",
    says="In GPT-2 the vocabulary has 50257 entries, and the context seen in training grows from 512 "
    "to 1024.",
    correction="",
    why="The configurations of both families were read. GPT-2 has {vocabulary:.0f} tokens and a "
    "context of {context:.0f}; GPT-1 has a context of {context_before:.0f}. Leadline's recipes of both "
    "models say the same.",
    checks=(
        Check(
            "vocabulary", "claim", "near", 50257, within=0.5, label="vocabulary of GPT-2",
            because=COUNT,
        ),
        Check(
            "context", "claim", "near", 1024, within=0.5, label="context of GPT-2", because=COUNT
        ),
        Check(
            "context_before", "claim", "near", 512, within=0.5, label="context of GPT-1",
            because=COUNT,
        ),
        Check(
            "recipe_differences", "claim", "at most", 0,
            label="differences to Leadline's recipes",
            because="A count of whole numbers that differ: none may.",
        ),
    ),
    source="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    seconds=0.01,
    seeded=False,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Read the configurations and the recipes."""
    from leadline.claims.attention._models import hf_configuration
    from leadline.parts import Recipe

    gpt1, gpt2 = hf_configuration("openai-gpt"), hf_configuration("gpt2")
    differences = 0
    for recipe, configuration in ((Recipe.named("gpt1"), gpt1), (Recipe.named("gpt2"), gpt2)):
        differences += sum(
            (
                recipe.vocabulary != configuration.vocab_size,
                recipe.context != configuration.n_positions,
                recipe.depth != configuration.n_layer,
                recipe.width != configuration.n_embd,
            )
        )
    return Measured(
        {
            "vocabulary": float(gpt2.vocab_size),
            "context": float(gpt2.n_positions),
            "context_before": float(gpt1.n_positions),
            "recipe_differences": float(differences),
        }
    )
