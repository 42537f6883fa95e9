"""A model that refuses its inputs: an input error where Leadline made them, else its own exception."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Tap
from leadline.testing.zoo import ZOO


class OwnError(Exception):
    """An exception class of the user's own."""


class Sighted(nn.Module):
    """A stack that wants an image beside its tokens."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.error = error

    def forward(
        self,
        input_ids: torch.Tensor,
        pixel_values: torch.Tensor | None = None,
        image_attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if pixel_values is None:
            raise self.error
        return self.embedding(input_ids)


WORDS = ValueError("You have to\n specify pixels")


@pytest.mark.parametrize("measure", [leadline.measure, leadline.anatomy_of])
def test_a_model_that_refuses_drawn_inputs_is_told_in_a_sentence(measure) -> None:
    with pytest.raises(leadline.InputError) as caught:
        measure(Sighted(WORDS))
    said = str(caught.value)
    assert "Sighted refused the inputs that were made for it (random tokens: input_ids" in said
    assert "ValueError: You have to specify pixels." in said
    # Masks and labels are not what it lacks.
    assert "Its forward also takes pixel_values. " in said
    assert "leadline.measure(model, {'name': tensor, ...})" in said and "--tokens-file" in said
    assert "\n" not in said
    assert caught.value.__cause__ is WORDS


def test_what_forward_cannot_do_without_is_said_to_be_needed() -> None:
    class Boxed(Sighted):
        def forward(self, input_ids: torch.Tensor, bbox: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            return self.embedding(input_ids)

    with pytest.raises(leadline.InputError, match=r"TypeError: .*Its forward needs bbox"):
        leadline.measure(Boxed(WORDS))


def test_shapes_that_do_not_fit_may_come_from_a_changed_configuration() -> None:
    with pytest.raises(leadline.InputError, match="configuration was changed, the sizes in it may"):
        leadline.measure(Sighted(RuntimeError("shapes cannot be multiplied")))
    with pytest.raises(leadline.InputError) as caught:
        leadline.measure(Sighted(WORDS))
    assert "configuration" not in str(caught.value)


def test_with_the_users_own_tensors_the_models_exception_passes_unchanged() -> None:
    for given in (torch.ones(2, 4, dtype=torch.long), {"input_ids": torch.ones(2, 4).long()}):
        with pytest.raises(ValueError) as caught:
            leadline.measure(Sighted(WORDS), given)
        assert caught.value is WORDS


@pytest.mark.parametrize("error", [OwnError("mine"), MemoryError(), leadline.ProbeError("ours")])
def test_an_exception_that_says_more_than_an_input_error_passes_unchanged(error) -> None:
    with pytest.raises(type(error)) as caught:
        leadline.measure(Sighted(error))
    assert caught.value is error


def test_a_failing_hook_of_leadline_is_not_laid_at_the_models_door(monkeypatch) -> None:
    model = ZOO["gpt2"].build(0)
    anatomy = leadline.anatomy_of(model)

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Tap, "locate", fail)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        leadline.measure(model, anatomy=anatomy, probes="attention")
