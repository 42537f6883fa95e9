"""Diagnoses on the page: the real lab, the real process of a job, tiny models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.visited_lab import LONG, VisitedLab

pytestmark = pytest.mark.browser

pytest.importorskip("starlette")
expect = pytest.importorskip("playwright.sync_api").expect

SLOW = """
import time
from pathlib import Path
from leadline.instruments.visit.check import check

@check("never-ends", facts=("never",))
def never_ends(patient):
    Path(__file__).with_suffix(".begun").touch()
    time.sleep(600)
    yield
"""


@pytest.fixture(scope="module")
def sick_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, one of whose projections is zero."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=4,
        n_embd=32,
        n_head=2,
        n_positions=64,
        vocab_size=128,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.h[2].mlp.c_proj.weight.zero_()
        model.transformer.h[2].mlp.c_proj.bias.zero_()
    folder = tmp_path_factory.mktemp("models") / "sick"
    model.save_pretrained(folder)
    return folder


def test_a_model_is_diagnosed_and_its_remedy_measured_again(lab: VisitedLab, sick_model: Path):
    page = lab.open(f"#/diagnose?model={sick_model}&kind=folder&apply=1")
    expect(page.get_by_label("Folder of the model")).to_have_value(str(sick_model))
    assert (
        page.locator(".diagnose-progress, .diagnose-verdict").locator("visible=true").count() == 0
    )
    page.get_by_role("button", name="Diagnose").press("Enter")
    expect(page.locator(".diagnose-progress progress")).to_be_visible()
    expect(page.locator(".stage-word")).to_contain_text(" of 21)", timeout=LONG)
    # The view may be left meanwhile.
    page.goto(f"{lab.origin}#/records")
    page.goto(f"{lab.origin}#/diagnose")
    expect(page.get_by_label("Folder of the model")).to_have_value(str(sick_model))
    verdict = page.locator(".diagnose-verdict")
    expect(verdict.locator("h2")).to_contain_text("1 serious finding", timeout=LONG)
    finding = page.locator(".finding[data-code=W01]")
    expect(finding).to_contain_text("transformer.h.2.mlp.c_proj.weight is 0 throughout")
    expect(finding).to_contain_text("never loaded after it was allocated")
    expect(finding.locator(".evidence tbody td").nth(1)).to_have_text("1.000")
    expect(page.locator(".again")).to_contain_text("is gone on a copy", timeout=LONG)
    before, after = page.locator(".before-after section").all()
    expect(before).to_contain_text("W01")
    expect(after).not_to_contain_text("W01")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden(timeout=LONG)


def test_a_random_model_is_healthy_and_one_that_is_missing_a_sentence(
    lab: VisitedLab, sick_model: Path
):
    page = lab.open("#/diagnose")
    page.get_by_role("button", name="Diagnose").click()
    expect(page.locator(".reason")).to_have_text("Name a model first.")
    page.get_by_label("Recipe").check()
    page.get_by_label("Name of the recipe").fill("no-such-recipe")
    page.keyboard.press("Enter")
    expect(page.locator(".diagnose-message")).to_contain_text("no-such-recipe", timeout=LONG)
    page.get_by_label("Name of the recipe").fill("default")
    page.keyboard.press("Enter")
    expect(page.locator(".diagnose-verdict")).to_have_attribute(
        "data-level", "healthy", timeout=LONG
    )
    assert page.evaluate("location.hash") == "#/diagnose?model=default&kind=recipe"
    expect(page.locator(".diagnose-message")).to_be_hidden()


def test_a_diagnosis_that_hangs_can_be_stopped(
    tmp_path: Path, browser: Any, start: Callable[..., Any], sick_model: Path
):
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW)
    (tmp_path / "folder").mkdir()
    lab = VisitedLab(tmp_path / "folder", browser, start, "--plugin", str(plugin))
    try:
        page = lab.open(f"#/diagnose?model={sick_model}&kind=folder")
        page.get_by_role("button", name="Diagnose").click()
        expect(page.locator(".stage-word")).to_contain_text("never-ends", timeout=LONG)
        for _ in range(100):
            if plugin.with_suffix(".begun").exists():
                break
            page.wait_for_timeout(100)
        assert plugin.with_suffix(".begun").exists()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("The diagnosis was stopped.")).to_be_visible(timeout=LONG)
        expect(page.locator(".diagnose-progress")).to_be_hidden()
        expect(page.get_by_role("button", name="Diagnose")).to_be_enabled()
        assert lab.problems == []
    finally:
        lab.close()
