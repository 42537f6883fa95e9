"""Inputs of models that see, hear or read boxes: drawn from the signature and the configuration."""

from __future__ import annotations

import pytest
import torch

import leadline
from leadline.models.inputs import random_inputs
from leadline.testing.zoo.survey import build


def _drawn(model_type: str, *, length: int = 12):
    model = build(model_type)
    return model, random_inputs(model, examples=2, length=length, seed=3)


def test_patches_stand_by_row_beside_their_grid_and_tokens_stand_for_them() -> None:
    model, inputs = _drawn("qwen2_vl")
    vision, grid = model.config.vision_config, inputs.tensors["image_grid_thw"]
    assert grid.tolist() == [[1, 4, 4], [1, 4, 4]]
    rows = inputs.tensors["pixel_values"]
    # 3 channels, two frames, patches of 4 by 4 pixels.
    assert rows.shape == (32, 3 * vision.temporal_patch_size * vision.patch_size**2)
    image = inputs.tensors["input_ids"] == model.config.image_token_id
    # Two by two patches are merged into one token.
    assert image.sum(dim=1).tolist() == [4, 4]
    assert torch.equal(inputs.tensors["mm_token_type_ids"] == 1, image)
    assert inputs.kind == "random tokens and pixels"


def test_an_image_becomes_as_many_tokens_as_the_model_makes_features_of_it() -> None:
    model, inputs = _drawn("llava")
    image = inputs.tensors["input_ids"] == model.config.image_token_id
    # 16 by 16 pixels in patches of 4; the class token is left out.
    assert image.sum(dim=1).tolist() == [16, 16]
    # Twelve tokens would not hold them, so the text is longer.
    assert inputs.tensors["input_ids"].shape == (2, 24)
    with torch.no_grad():
        assert model(**inputs.tensors).logits.shape == (2, 24, 99)


def test_the_tokens_that_stand_for_an_image_are_not_predicted() -> None:
    model, inputs = _drawn("qwen2_vl")
    record = leadline.measure(model, inputs, probes="stream")
    image = inputs.tensors["input_ids"] == model.config.image_token_id
    labels = inputs.tensors["input_ids"].masked_fill(image, -100)
    with torch.no_grad():
        # transformers' own mean over the text tokens that follow another token.
        expected = model(**inputs.tensors, labels=labels).loss
    assert record.provenance["loss"]["kind"] == "next-token"
    assert record.provenance["loss"]["value"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_a_lack_of_memory_is_not_taken_for_a_layout_that_does_not_fit(error, monkeypatch) -> None:
    model = build("llava")

    def fail(*_, **__):
        raise error("no memory left")

    monkeypatch.setattr(model, "get_image_features", fail)
    with pytest.raises(error, match="no memory left"):
        random_inputs(model, examples=2, length=12)


def test_a_text_without_room_for_an_image_goes_without_it() -> None:
    model = build("llava", text_config={"max_position_embeddings": 20})
    inputs = random_inputs(model, examples=2, length=12)
    assert list(inputs.tensors) == ["input_ids"] and inputs.kind == "random tokens"


def test_whole_and_broken_boxes_stand_where_the_model_wants_them() -> None:
    for model_type, whole in (("layoutlm", True), ("lilt", True), ("bros", False), ("udop", False)):
        _, inputs = _drawn(model_type)
        boxes = inputs.tensors["bbox"]
        assert boxes.shape == (2, 12, 4), model_type
        assert boxes.is_floating_point() is not whole, model_type
        assert boxes.min() >= 0 and boxes.max() <= (1000 if whole else 1)
        assert bool((boxes[..., :2] <= boxes[..., 2:]).all()), model_type


def test_a_waveform_of_unnamed_strides_makes_as_many_tokens_as_were_asked_for() -> None:
    model, inputs = _drawn("moonshine")
    assert list(inputs.tensors) == ["input_values", "decoder_input_ids"]
    with torch.no_grad():
        encoded = model.model.encoder(inputs.tensors["input_values"]).last_hidden_state
    # One convolution pads its output, so a token may be more.
    assert encoded.shape[1] in (12, 13)


def test_a_decoder_of_several_codebooks_gets_an_id_for_each() -> None:
    model, inputs = _drawn("dia")
    assert inputs.tensors["decoder_input_ids"].shape == (
        2,
        12,
        model.config.decoder_config.num_channels,
    )


def test_drawing_an_image_leaves_no_trace_in_the_model() -> None:
    model = build("qwen2_vl").train()
    state = torch.random.get_rng_state()
    random_inputs(model, examples=2, length=12)
    assert model.training and model.model.visual.training
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("model_type", "stacks"),
    [
        ("qwen2_vl", {"decoder", "vision"}),
        ("blip-2", {"vision", "encoder", "decoder"}),
        ("speecht5", {"encoder", "decoder"}),
        ("layoutlmv3", {"encoder"}),
    ],
)
def test_a_model_that_wants_more_than_tokens_is_measured_without_inputs(model_type, stacks) -> None:
    record = leadline.measure(build(model_type), probes="stream")
    assert set(record.provenance["anatomy"]["stacks"]) == stacks


def test_an_argument_that_nobody_can_draw_is_named() -> None:
    with pytest.raises(leadline.InputError, match="'query_embeds', for which no random values"):
        random_inputs(build("blip_2_qformer"), length=12)


def test_ids_are_drawn_below_the_rows_of_the_table_that_they_enter() -> None:
    # Dia reads bytes and writes codes of sound: two tables, and the configuration names one size.
    model = build("dia", encoder_config={"vocab_size": 7}, decoder_config={"vocab_size": 50})
    inputs = random_inputs(model, examples=8, length=40)
    assert int(inputs.tensors["input_ids"].max()) == 6
    assert 7 < int(inputs.tensors["decoder_input_ids"].max()) < 50
    with torch.no_grad():
        model(**inputs.tensors)


@pytest.mark.parametrize("model_type", ["llava", "paligemma"])
def test_an_image_token_outside_the_vocabulary_leaves_the_text_alone(model_type) -> None:
    model = build(model_type, image_token_index=99)
    inputs = random_inputs(model, examples=2, length=12)
    assert list(inputs.tensors) == ["input_ids"] and int(inputs.main.max()) < 99
    (entry,) = leadline.measure(model, inputs, probes="stream").provenance["coverage"]["refused"]
    assert entry["what"] == "model.vision_tower, model.multi_modal_projector"
    assert entry["why"] == (
        "they did not run, because the inputs hold no image: the configuration's image token 99 "
        "lies outside its vocabulary of 99 tokens; build the model with "
        "text_config.vocab_size=128 (--set text_config.vocab_size=128)"
    )
    # What it advises mends it.
    mended = build(model_type, image_token_index=99, text_config={"vocab_size": 128})
    record = leadline.measure(mended, probes="stream")
    assert record.provenance["input"]["kind"] == "random tokens and pixels"
    assert record.provenance["coverage"]["refused"] == []


@pytest.mark.parametrize("model_type", ["blip-2", "instructblip"])
def test_an_image_that_no_token_stands_for_is_refused_with_the_field_to_set(model_type) -> None:
    model = build(model_type)
    model.config.image_token_index = None
    with pytest.raises(leadline.InputError, match=r"image_token_index is None.*--set image_to"):
        random_inputs(model, examples=2, length=12)
    # The last id of the vocabulary is the one it names.
    model.config.image_token_index = 98
    with torch.no_grad():
        model(**random_inputs(model, examples=2, length=12).tensors)


def test_a_decoder_whose_codebooks_stand_below_each_other_gets_a_row_for_each() -> None:
    from transformers import MusicgenConfig

    from leadline.models.loading.configuration import class_of
    from leadline.testing.zoo._shrinking import small

    config = MusicgenConfig(**small(MusicgenConfig, {}))
    model = class_of(config)(config).eval()
    inputs = random_inputs(model, examples=2, length=12)
    assert inputs.tensors["input_ids"].shape == (2, 12)
    assert inputs.tensors["decoder_input_ids"].shape == (2 * config.decoder.num_codebooks, 12)
    record = leadline.measure(model, inputs)
    assert set(record.stacks) == {"text", "decoder"}
