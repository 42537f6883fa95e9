"""Further model types: balanced, refused with a reason that is true, or the model's own words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.anatomy import TOLERANCE
from leadline.testing.zoo import ZOO
from leadline.testing.zoo.survey import OUTCOMES, TYPES, SurveyAnswer, survey

PAGE = Path(__file__).parents[2] / "docs" / "survey.md"

SAMPLE = {
    "bros": "balanced",
    "blip-2": "balanced",
    "cwm": "balanced",
    "deepseek_v32": "balanced",
    "dia": "balanced",
    "layoutlmv3": "balanced",
    "moonshine": "balanced",
    "qwen2_vl": "balanced",
    "speecht5": "balanced",
    "udop": "balanced",
    "gpt_neox_japanese": "refused",
    "resnet": "refused",
    "kosmos-2": "own error",
}
"""Quick ones of every kind; the rest goes with the slow tests."""

TRUE_REASONS = (
    # Convolutional networks, and Transformers that keep the features before the places.
    "the features stand before the places",
    # Tokens are regrouped, cropped or merged inside the block, or more than four updates are added.
    r"is not its input plus outputs of its modules, up to 4 of them",
    # Windows or chunks: what attention returns is padded, and cut to the stream by no module.
    r"returns \[.*\] and the stream is \[.*\], so it cannot be what is added to it",
    # A parameter is added to the stream by no module (a bias in the last layer of GPT-NeoX Japanese).
    r"The books do not balance\. It is worst at",
    # Two streams in turn (Reformer), or attention that needs a GPU and returns zeros (MRA).
    "none of them moves other tokens of that stream",
    # One block, or blocks between which the shape changes.
    "has no row of repeated blocks through which a tensor of one shape passes",
    # Arguments of which neither the signature nor the configuration says enough.
    "for which no random values can be drawn",
    "names no image size, so no pixels can be drawn",
)


def _holds(answer: SurveyAnswer) -> None:
    assert answer.outcome in OUTCOMES
    if answer.outcome == "balanced":
        assert answer.anatomy is not None and answer.anatomy.balance is not None
        assert answer.anatomy.balance.eps <= TOLERANCE
        assert answer.anatomy.balance.layers == sum(s.depth for s in answer.anatomy.stacks)
        # An update that rounding hides would balance whatever was read.
        assert answer.anatomy.balance.faintest > 1000
    elif answer.outcome == "refused":
        assert any(re.search(reason, answer.reason) for reason in TRUE_REASONS), answer.reason
    else:
        # The model's class, what it got, its own exception, and what to do.
        assert re.search(r"^\w+ refused the inputs .*\(random .*\) with \w+: .+", answer.reason)
        assert "leadline.measure(model, {'name': tensor, ...})" in answer.reason


@pytest.mark.parametrize("model_type", sorted(SAMPLE))
def test_a_sample_of_the_survey_is_answered_as_expected(model_type: str) -> None:
    answer = survey(model_type)
    assert answer.outcome == SAMPLE[model_type], answer.reason
    _holds(answer)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(set(TYPES) - set(SAMPLE)))
def test_every_type_of_the_survey_is_answered(model_type: str) -> None:
    _holds(survey(model_type))


def test_the_survey_goes_beyond_the_zoo_and_its_page_counts_it() -> None:
    assert not set(TYPES) & set(ZOO)
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)
    assert sorted(rows) == sorted(TYPES)
    balanced = text[text.index("## Balanced") : text.index("## Refused")]
    assert balanced.count("\n| `") >= 120
