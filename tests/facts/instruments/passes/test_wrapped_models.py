"""Models inside wrappers: adapters, data parallelism, compilation; and sharded ones, refused."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import unwrapped
from leadline.errors import InputError
from leadline.models.inputs import context_limit
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")

EXAMPLES, LENGTH = 2, 12


def _measured(model: nn.Module, **options: Any) -> leadline.Record:
    inputs = leadline.random_tokens(model, examples=EXAMPLES, length=LENGTH, seed=3)
    return leadline.measure(model, inputs, seed=3, **options)


def _values(record: leadline.Record, quantity: str) -> list[float]:
    return [reading.value for reading in record.select(quantity)]


def _adapted(name: str, config: Any) -> tuple[nn.Module, nn.Module]:
    """A model and a copy of it with adapters."""
    peft = pytest.importorskip("peft")
    base = ZOO[name].build(0)
    torch.manual_seed(1)
    return base, peft.get_peft_model(copy.deepcopy(base), config)


def _lora(**options: Any) -> Any:
    return pytest.importorskip("peft").LoraConfig(r=2, **options)


# PEFT says that it sets fan_in_fan_out for GPT-2's transposed layers.
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
@pytest.mark.parametrize(
    ("name", "targets", "loss"),
    [
        ("gpt2", ["c_attn"], "next-token"),
        ("gpt2", ["c_attn", "c_proj", "c_fc"], "next-token"),
        ("llama", ["q_proj", "v_proj"], "next-token"),
        ("llama", "all-linear", "next-token"),
        ("bert", ["query", "value"], "masked"),
        ("bert", "all-linear", "masked"),
    ],
)
def test_fresh_adapters_change_nothing_that_is_measured(name: str, targets: Any, loss: str) -> None:
    base, adapted = _adapted(name, _lora(target_modules=targets))
    expected, record = _measured(base), _measured(adapted)
    assert record.provenance["loss"] == expected.provenance["loss"]
    assert record.provenance["loss"]["kind"] == loss
    for quantity in ("stream.norm", "update.norm", "gradient.stream"):
        assert _values(record, quantity) == pytest.approx(_values(expected, quantity), rel=1e-6)
    roles = [
        [s["role"] for layer in r.provenance["anatomy"]["layers"] for s in layer["sublayers"]]
        for r in (record, expected)
    ]
    assert roles[0] == roles[1]


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
@pytest.mark.parametrize(
    ("name", "targets"), [("gpt2", ["c_attn", "c_proj"]), ("llama", "all-linear")]
)
def test_adapters_that_have_learned_are_measured_as_if_merged(name: str, targets: Any) -> None:
    _, adapted = _adapted(name, _lora(target_modules=targets, init_lora_weights=False))
    record = _measured(adapted)
    merged = adapted.merge_and_unload()  # pyright: ignore
    expected = _measured(merged)
    for quantity in ("stream.norm", "update.norm"):
        assert _values(record, quantity) == pytest.approx(_values(expected, quantity), rel=1e-4)
    assert record.provenance["loss"]["value"] == pytest.approx(
        expected.provenance["loss"]["value"], rel=1e-5
    )


def test_the_record_names_the_wrapper_and_the_model() -> None:
    _, adapted = _adapted("llama", _lora(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    model = _measured(nn.DataParallel(adapted)).provenance["model"]
    assert model["class"] == "LlamaForCausalLM"
    assert model["wrappers"] == ["DataParallel", "PeftModelForCausalLM (LORA)"]
    assert model["mode"] == "eval"
    assert "wrappers" not in _measured(ZOO["llama"].build(0)).provenance["model"]


def test_gradients_of_scaling_adapters_are_measured() -> None:
    peft = pytest.importorskip("peft")
    _, adapted = _adapted("llama", peft.IA3Config(task_type="CAUSAL_LM"))
    record = _measured(adapted)
    gradients = _values(record, "gradient.parameters")
    assert len(gradients) == 2 * record.depth() and all(value > 0 for value in gradients)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", ["PrefixTuningConfig", "PromptTuningConfig"])
def test_tuned_prompts_stay_before_the_text(name: str, kind: str) -> None:
    peft = pytest.importorskip("peft")
    config = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3)
    base, adapted = _adapted(name, config)
    limits = [context_limit(model) for model in (base, adapted)]
    assert limits[0] is not None and limits[1] == limits[0] - 3
    record = _measured(adapted)
    inputs = leadline.random_tokens(base, examples=EXAMPLES, length=LENGTH, seed=3)
    ids = inputs.tensors["input_ids"]
    adapted.eval()
    with torch.no_grad():
        logits = adapted(input_ids=ids).logits[:, -LENGTH:]
    expected = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert record.provenance["loss"]["kind"] == "next-token"
    assert record.provenance["loss"]["value"] == pytest.approx(float(expected), rel=1e-5)


def test_a_cache_that_the_model_fills_on_its_way_does_not_hide_its_attention() -> None:
    """GPT-2 hands its cache to its blocks by position; this wrapper does not let it be switched off."""

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ZOO["gpt2"].build(0)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.inner(input_ids=input_ids).logits

    model = Plain()
    ids = leadline.random_tokens(model.inner, examples=EXAMPLES, length=LENGTH).tensors["input_ids"]
    sublayers = leadline.anatomy_of(model, ids).stacks[0].blocks[0].sublayers
    assert [s.role for s in sublayers] == ["attention", "mlp"]


def test_wrappers_are_taken_off_in_any_order() -> None:
    model = nn.Linear(2, 2)
    assert unwrapped(model) is model
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(nn.DataParallel(nn.DataParallel(model))) is model
    assert unwrapped(nn.DataParallel(torch.compile(model, backend="eager"))) is model  # pyright: ignore
    assert unwrapped(torch.compile(nn.DataParallel(model), backend="eager")) is model  # pyright: ignore


# --- sharded models ------------------------------------------------------------------------------

_CHILD = """
import sys
import torch
import torch.distributed as dist
import leadline
from leadline.errors import InputError
from leadline.testing.zoo import ZOO

how, store = sys.argv[1], sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(store, 1), rank=0, world_size=1)
try:
    model = ZOO["llama"].build(0)
    if how == "fully_shard":
        from torch.distributed.fsdp import fully_shard
        for layer in model.model.layers:
            fully_shard(layer, mesh=dist.init_device_mesh("cpu", (1,)))
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
    elif how == "FullyShardedDataParallel":
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    else:
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
        mesh = dist.init_device_mesh("cpu", (1,))
        parallelize_module(model, mesh, {"model.layers.0.mlp.up_proj": ColwiseParallel()})

    def trace():
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
        flags = [m.training for m in model.modules()]
        return hooks, flags, [(id(p), p.requires_grad, p.grad is None) for p in model.parameters()]

    before = trace()
    ids = torch.arange(12).reshape(2, 6)
    for function in ("measure", "anatomy_of", "collapse", "paths", "jacobian", "lyapunov"):
        try:
            getattr(leadline, function)(model, ids)
            print(function, "no error")
        except InputError as error:
            print(function, str(error))
        assert trace() == before, function
finally:
    dist.destroy_process_group()
"""


def _told(how: str, place: Path) -> dict[str, str]:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, how, str(place / "store")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return dict(line.split(" ", 1) for line in child.stdout.splitlines())


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize(
    ("how", "wrapper", "remedy"),
    [
        pytest.param(
            "fully_shard",
            "FSDP2 (torch.distributed.fsdp.fully_shard)",
            "before fully_shard",
            marks=pytest.mark.slow,
        ),
        ("FullyShardedDataParallel", "FSDP (FullyShardedDataParallel)", "before it is wrapped"),
        ("parallelize_module", "is a DTensor", "full_tensor()"),
    ],
)
def test_a_sharded_model_is_refused_by_the_name_of_its_wrapper(
    how: str, wrapper: str, remedy: str, tmp_path: Path
) -> None:
    told = _told(how, tmp_path)
    assert set(told) == {"measure", "anatomy_of", "collapse", "paths", "jacobian", "lyapunov"}
    if how != "FullyShardedDataParallel":  # by all processes together
        assert told.pop("measure") == "no error"
    for message in told.values():
        assert wrapper in message and remedy in message


def test_parameters_that_deepspeed_has_partitioned_are_refused() -> None:
    model = ZOO["llama"].build(0)
    weight: Any = model.get_parameter("lm_head.weight")
    weight.ds_id, weight.ds_status = 0, "NOT_AVAILABLE"
    with pytest.raises(
        InputError, match=r"'lm_head.weight' is partitioned by DeepSpeed \(ZeRO-3\)"
    ):
        leadline.measure(model)


# --- offloaded models ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cpu_offload", "disk_offload"])
def test_weights_that_accelerate_takes_away_are_refused_by_name(how: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = ZOO["llama"].build(0)
    device = torch.device("cpu")
    if how == "cpu_offload":
        accelerate.cpu_offload(model, execution_device=device)
    else:
        accelerate.disk_offload(model, str(tmp_path), execution_device=device)
    ids = torch.arange(12).reshape(2, 6)
    for entry in (leadline.measure, leadline.anatomy_of):
        with pytest.raises(InputError, match=r"'model.embed_tokens' are offloaded by accelerate"):
            entry(model, ids)
    assert torch.isfinite(model(ids).logits).all()


def test_a_model_that_accelerate_has_dispatched_without_offloading_is_measured() -> None:
    accelerate = pytest.importorskip("accelerate")
    ids = torch.arange(12).reshape(2, 6)
    plain = leadline.measure(ZOO["llama"].build(0), ids, probes="stream")
    model = accelerate.dispatch_model(ZOO["llama"].build(0), {"": "cpu"}, force_hooks=True)
    dispatched = leadline.measure(model, ids, probes="stream")
    for one, other in zip(plain.select(), dispatched.select(), strict=True):
        assert one == other
