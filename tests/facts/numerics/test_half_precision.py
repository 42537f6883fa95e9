"""Half precision on processors with AMX that works, AMX that kills, and without AMX."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import leadline as ll
from leadline.errors import MachineError
from leadline.numerics import half_precision
from leadline.numerics.half_precision import (
    VARIABLE,
    half_route,
    multiplies_in_half,
    prepare_half_products,
)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What was found out about this machine is not known, and known again afterwards."""
    before = os.environ.get(VARIABLE)
    monkeypatch.setattr(half_precision, "_known_route", None)
    os.environ.pop(VARIABLE, None)
    yield
    os.environ.pop(VARIABLE, None)
    if before is not None:
        os.environ[VARIABLE] = before


Processor = Callable[..., list[str | None]]


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    """Stand in for a processor; returned is the variable at each try of a product."""

    def choose(*, amx: bool, survives: Callable[[str | None], bool]) -> list[str | None]:
        tries: list[str | None] = []

        def attempt() -> bool:
            tries.append(os.environ.get(VARIABLE))
            return survives(tries[-1])

        monkeypatch.setattr(half_precision, "_advertises_amx", lambda: amx)
        monkeypatch.setattr(half_precision, "_product_survives", attempt)
        return tries

    return choose


def test_without_amx_nothing_is_tried(processor: Processor) -> None:
    tries = processor(amx=False, survives=lambda _: False)
    assert prepare_half_products() == "oneDNN without AMX"
    assert tries == []
    assert VARIABLE not in os.environ


def test_amx_that_works_keeps_its_speed(processor: Processor) -> None:
    tries = processor(amx=True, survives=lambda _: True)
    assert prepare_half_products() == "oneDNN with AMX"
    assert tries == [None]
    assert VARIABLE not in os.environ


def test_amx_that_kills_is_avoided_while_there_is_time(processor: Processor) -> None:
    tries = processor(amx=True, survives=lambda limit: limit == "AVX512_CORE_FP16")
    assert "AMX is advertised but fails" in prepare_half_products()
    assert tries == [None, "AVX512_CORE_FP16"]
    assert os.environ[VARIABLE] == "AVX512_CORE_FP16"


def test_amx_that_kills_is_refused_when_it_is_too_late(processor: Processor) -> None:
    processor(amx=True, survives=lambda _: False)
    with pytest.raises(MachineError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"):
        prepare_half_products()
    assert VARIABLE not in os.environ


def test_a_limit_of_the_user_stands(processor: Processor) -> None:
    os.environ[VARIABLE] = "AVX2"
    processor(amx=True, survives=lambda _: True)
    assert prepare_half_products() == "oneDNN with ONEDNN_MAX_CPU_ISA=AVX2"


def test_a_limit_of_the_user_that_does_not_help_is_not_overwritten(processor: Processor) -> None:
    os.environ[VARIABLE] = "ALL"
    processor(amx=True, survives=lambda _: False)
    with pytest.raises(MachineError):
        prepare_half_products()
    assert os.environ[VARIABLE] == "ALL"


def test_the_answer_is_remembered(processor: Processor) -> None:
    tries = processor(amx=True, survives=lambda _: True)
    assert prepare_half_products() == prepare_half_products()
    assert len(tries) == 1


def test_a_float32_model_tries_nothing(processor: Processor) -> None:
    tries = processor(amx=True, survives=lambda _: False)
    assert half_route(nn.Linear(2, 2)) is None
    assert tries == []


def test_what_counts_as_half_precision() -> None:
    plain = nn.Linear(2, 2)
    assert not multiplies_in_half(plain)
    assert multiplies_in_half(nn.Linear(2, 2, dtype=torch.bfloat16))
    assert multiplies_in_half(nn.Linear(2, 2, dtype=torch.float16))
    assert not multiplies_in_half(nn.Linear(2, 2, dtype=torch.bfloat16, device="meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert multiplies_in_half(plain)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert multiplies_in_half(plain)
    finally:
        torch.set_float32_matmul_precision(before)
    assert not multiplies_in_half(plain)


def test_a_record_says_the_route(processor: Processor) -> None:
    processor(amx=True, survives=lambda limit: limit is not None)
    model = ll.Transformer(depth=2, width=16, heads=2, vocabulary=11).bfloat16()
    record = ll.measure(model, ll.random_tokens(model, examples=1, length=4))
    route = record.provenance["model"]["half_precision"]
    assert route.startswith("oneDNN with ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16")
    assert route in str(record)


def test_a_measurement_that_would_end_the_process_is_refused(processor: Processor) -> None:
    processor(amx=True, survives=lambda _: False)
    model = ll.Transformer(depth=2, width=16, heads=2, vocabulary=11).bfloat16()
    with pytest.raises(MachineError, match="AMX"):
        ll.measure(model, torch.zeros(1, 4, dtype=torch.long))
    assert "half_precision" not in ll.measure(model.float()).provenance["model"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the defect is known on Linux alone")
def test_a_copy_that_is_killed_does_not_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert half_precision._product_survives()
    parent = os.getpid()

    def die(*_: object) -> None:
        assert os.getpid() != parent, "the product ran in this process"
        os.kill(os.getpid(), signal.SIGILL)

    monkeypatch.setattr(torch, "bmm", die)
    assert not half_precision._product_survives()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the defect is known on Linux alone")
def test_a_program_that_ignores_its_children_is_told_all_the_same() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert half_precision._product_survives()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_empty_limit_is_none(processor: Processor) -> None:
    os.environ[VARIABLE] = ""
    processor(amx=True, survives=lambda limit: limit == "AVX512_CORE_FP16")
    assert "AMX is advertised but fails" in prepare_half_products()


def test_what_torch_multiplies_itself_is_not_said_to_go_through_onednn(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(amx=False, survives=lambda _: True)
    monkeypatch.setattr(
        half_precision, "_goes_through_onednn", lambda dtype: dtype == torch.bfloat16
    )
    assert half_route(nn.Linear(2, 2, dtype=torch.bfloat16)) == "oneDNN without AMX"
    assert half_route(nn.Linear(2, 2, dtype=torch.float16)) == "torch's own kernels, without oneDNN"


_LIMITED_TOO_LATE = """
import os, torch
from leadline.numerics import half_precision
def product():
    torch.nn.functional.conv2d(torch.ones(2, 16, 64, 64), torch.ones(16, 16, 3, 3))
if {early}:
    product()
os.environ[half_precision.VARIABLE] = "AVX2"
os.environ["ONEDNN_VERBOSE"] = "1"
with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
    product()
"""


def test_onednn_settles_its_instructions_at_the_first_product() -> None:
    """Why a fork tells what a new process cannot: a product in float32 is enough to settle them."""
    if not torch.cpu._is_avx512_supported():
        pytest.skip("without AVX-512 the limit AVX2 changes nothing")
    told = {
        early: subprocess.run(
            [sys.executable, "-c", _LIMITED_TOO_LATE.format(early=early)],
            capture_output=True,
            text=True,
            check=True,
            env={name: value for name, value in os.environ.items() if name != VARIABLE},
        ).stdout
        for early in (True, False)
    }
    assert "AVX-512" in told[True]
    assert "AVX-512" not in told[False]
    assert "AVX2" in told[False]
