"""Figures 5 and 6: the attention of GPT-1 has larger norms than that of GPT-2."""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "gpt1-above-gpt2",
    group="attention",
    notes=("deep-dive",),
    title="GPT-1's attention norms lie 0.1 to 0.25 above GPT-2's",
    says="On 128 sentences the mean norms of GPT-1, the post-norm model, stay above those of GPT-2, "
    "the pre-norm model, by 0.1 to 0.25 in nearly all layers. On short sentences GPT-1 rises to 2.05 "
    "in the second layer, dips, rises again after the eighth and ends at 2.25; GPT-2 climbs slowly from "
    "1.5 and ends at 1.9.",
    why="It needs the released weights of both models and the note's sentences, none of which come "
    "with Leadline. With the weights at hand, leadline reproduce attention-spectra draws the figure, "
    "with padding removed. Two trained models would also differ in data, training and vocabulary, so "
    "the figure alone could not say that the place of the norms is the cause.",
)
