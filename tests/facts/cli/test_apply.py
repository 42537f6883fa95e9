"""`leadline diagnose --diff --apply`: the remedy is shown, applied to a copy, and measured again."""

import json

import pytest
import torch

transformers = pytest.importorskip("transformers")


def saved(path, change, **more):
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=5, n_head=4, n_positions=64,
                                     bos_token_id=0, eos_token_id=0, **more)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        change(model)
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("code", "edit", "change"),
    [
        ("W02", "scale-tensor", lambda m: m.transformer.h[2].attn.c_attn.weight.mul_(100)),
        ("N04", "fill-tensors", lambda m: m.transformer.h[1].ln_2.weight.zero_()),
    ],
)
def test_a_remedy_is_shown_applied_and_found_to_help(leadline, tmp_path, code, edit, change):
    path = saved(tmp_path / "model", change)
    asked = ["diagnose", path, "--random", "2x24", "--diff", "--apply"]
    said = leadline(*asked)
    assert said.code == 0, said.err
    assert f"The remedy helps: {code} " in said.out
    assert f": {edit} (" in said.out
    answer = json.loads(leadline(*asked, "--json").out)
    preview, proof = answer["remedies"][0], answer["remedies"][-1]
    assert preview["code"] == proof["code"] == code
    assert (proof["gone"], proof["new"], proof["healthy"]) == (True, [], True)


def test_a_healthy_model_has_nothing_to_apply(leadline, tmp_path):
    path = saved(tmp_path / "model", lambda model: model)
    said = leadline("diagnose", path, "--random", "2x24", "--apply")
    assert said.code == 2
    assert "--apply has nothing to apply: no finding is more than a note." in said.err


def test_a_remedy_that_needs_a_hand_says_so(leadline, tmp_path):
    path = saved(
        tmp_path / "model", lambda m: m.transformer.h[2].mlp.c_fc.weight[3, 4].fill_(torch.nan)
    )
    said = leadline("diagnose", path, "--random", "2x24", "--apply")
    assert said.code == 2
    assert "cannot be applied by itself; by hand: " in said.err
    assert "W10" in said.out, "the diagnosis itself is shown all the same"
