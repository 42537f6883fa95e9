"""Runs that go wrong in four known ways, and healthy ones: those for tuning, and those for scoring.

    rate-too-large     the rate climbs until the loss comes apart
    moment-stale       a trained model is trained on while the second moment (beta2 0.999 and more)
                       learns a quiet time; then more and more targets change and the rate rises. With
                       beta2 0.95 the same run fails seldom (`remembering_less`)
    attention-growing  queries and keys have a rate many times that of the other weights
    post-no-warmup     a deep post-norm model without warm-up, which never learns; its twin has warm-up

Alarms were tuned on `TUNING` alone. `SCORING` has other sizes, tasks, rates and seeds. Its settings
were chosen by whether the loss fails, with nobody watching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from _precursor_runs import Run

__all__ = ["KINDS", "SCORING", "SETS", "TUNING", "remembering_less"]

KINDS = ("rate-too-large", "moment-stale", "attention-growing", "post-no-warmup")


def _model(depth: int, width: int, **parts: Any) -> dict[str, Any]:
    return {"depth": depth, "width": width, "heads": 4, **parts}


def _by_seed(runs: Sequence[Run], seeds: Sequence[int]) -> list[Run]:
    return [replace(run, seed=seed) for run in runs for seed in seeds]


def remembering_less(run: Run) -> Run:
    """The same run with a second moment of twenty updates."""
    return replace(run, name=f"{run.name}, beta2 0.95", beta2=0.95)


def _post(name: str, task: str, depth: int, width: int, rate: float) -> Run:
    model = _model(depth, width, placement="post", init="xavier")
    return Run(name=name, kind="post-no-warmup", task=task, recipe=model, batch=8, steps=250,
               rate=rate, warmup=0, twin=True)  # fmt: skip


_TUNING_FAILURES = [
    Run(name="copy, 4 x 64, AdamW", kind="rate-too-large", task="copy", recipe=_model(4, 64),
        steps=400, rate=0.1, warmup=400),
    Run(name="text, 4 x 64, SGD", kind="rate-too-large", task="stdlib", recipe=_model(4, 64),
        batch=8, optimizer="sgd", rate=0.3, climb=(100, 300, 6.0)),
    Run(name="copy, 4 x 64, beta2 0.9999", kind="moment-stale", task="copy", recipe=_model(4, 64),
        steps=370, before=200, beta2=0.9999, rate=1e-3, noise=0.01, shifted=0.05, shift=270,
        shift_within=40, late_rate=2e-2),
    Run(name="copy of 12, 6 x 48, beta2 0.999", kind="moment-stale", task="copy(symbols=12,items=12)",
        recipe=_model(6, 48, norm="rmsnorm"), steps=350, before=220, beta2=0.999, rate=1e-3,
        noise=0.01, shifted=0.05, shift=250, shift_within=60, late_rate=2e-2),
    Run(name="copy, 4 x 64, rate x 100", kind="attention-growing", task="copy", recipe=_model(4, 64),
        qk=100.0, warmup=200),
    Run(name="sorting, 4 x 64, rate x 100", kind="attention-growing", recipe=_model(4, 64), qk=100.0,
        warmup=200),
    _post("sorting, 12 x 64", "sorting", 12, 64, 1e-3),
    _post("sorting of 10, 9 x 48", "sorting(symbols=10)", 9, 48, 2e-3),
]  # fmt: skip
_SCORING_FAILURES = [
    Run(name="sorting, 6 x 48, AdamW", kind="rate-too-large", recipe=_model(6, 48), rate=1e-3,
        climb=(100, 300, 0.5)),
    Run(name="sorting, 5 x 64 rotary, SGD", kind="rate-too-large",
        recipe=_model(5, 64, norm="rmsnorm", positions="rotary"), optimizer="sgd", rate=0.1,
        climb=(100, 300, 5.0)),
    Run(name="copy of 12, 6 x 64, beta2 0.999", kind="moment-stale", task="copy(symbols=12,items=12)",
        recipe=_model(6, 64), steps=360, before=200, beta2=0.999, rate=1e-3, noise=0.01, shifted=0.05,
        shift=260, shift_within=50, late_rate=1.5e-2),
    Run(name="copy of 20, 4 x 80 rotary, beta2 0.9999", kind="moment-stale",
        task="copy(symbols=20,items=14)", recipe=_model(4, 80, norm="rmsnorm", positions="rotary"),
        steps=360, before=240, beta2=0.9999, rate=1e-3, noise=0.008, shifted=0.05, shift=260,
        shift_within=60, late_rate=3e-2),
    Run(name="sorting, 5 x 64, rate x 200", kind="attention-growing", recipe=_model(5, 64), rate=1e-3,
        qk=200.0, warmup=200),
    Run(name="copy of 12, 6 x 48, rate x 80", kind="attention-growing",
        task="copy(symbols=12,items=12)", recipe=_model(6, 48), qk=80.0, warmup=250),
    _post("sorting of 12, 10 x 64", "sorting(symbols=12)", 10, 64, 1.5e-3),
    _post("sorting of 24, 14 x 48", "sorting(symbols=24,items=20)", 14, 48, 1e-3),
]  # fmt: skip
_TUNING_HEALTHY = [
    Run(name="text, pre-norm 4 x 64", task="stdlib", recipe=_model(4, 64), batch=8, steps=500),
    Run(name="text, rotary 6 x 48, clipped, cosine", task="stdlib", steps=400, cosine=True, clip=1.0,
        recipe=_model(6, 48, norm="rmsnorm", positions="rotary"), batch=8, rate=3e-3, decay=0.1),
    Run(name="sorting, pre-norm 4 x 48", recipe=_model(4, 48), steps=500),
    Run(name="copy, pre-norm 4 x 64", task="copy", recipe=_model(4, 64), steps=400),
    Run(name="copy of 20, QK-norm 5 x 64", task="copy(symbols=20)", steps=400,
        recipe=_model(5, 64, attention="multihead(qk_norm=head)")),
    Run(name="identity, pre-norm 6 x 64", task="identity", recipe=_model(6, 64), steps=400),
    Run(name="sorting, post-norm 6 x 64", recipe=_model(6, 64, placement="post"), steps=400, rate=1e-3,
        warmup=60),
    Run(name="text, post-norm 5 x 64, beta2 0.999", task="stdlib", batch=8, rate=1e-3, warmup=100,
        recipe=_model(5, 64, placement="post"), steps=400, beta2=0.999),
    Run(name="sorting, SGD 4 x 64", recipe=_model(4, 64), optimizer="sgd", rate=0.1, steps=400),
    Run(name="copy, trained on, 4 x 64", task="copy", recipe=_model(4, 64), before=200, rate=1e-3,
        beta2=0.999, noise=0.02, steps=400),
    Run(name="sums, pre-norm 4 x 64", task="addition(p=31)", recipe=_model(4, 64), rate=1e-3, batch=32,
        steps=400),
    Run(name="recall, 12 x 48", task="recall", recipe=_model(12, 48), rate=1e-3, warmup=50, steps=400),
]  # fmt: skip
_SCORING_HEALTHY = [
    Run(name="text, pre-norm 6 x 64, cosine", task="stdlib", recipe=_model(6, 64), batch=8, steps=500,
        cosine=True, rate=1e-3, warmup=50, decay=0.1, clip=1.0),
    Run(name="text, rotary QK-norm 5 x 64", task="stdlib", batch=8, rate=3e-3, warmup=40, steps=400,
        recipe=_model(5, 64, norm="rmsnorm", positions="rotary",
                      attention="multihead(qk_norm=head)")),
    Run(name="sorting of 20, pre-norm 8 x 48", task="sorting(symbols=20)", recipe=_model(8, 48),
        rate=1.5e-3, steps=500, beta2=0.99),
    Run(name="copy of 12, pre-norm 5 x 64", task="copy(symbols=12,items=12)", recipe=_model(5, 64),
        steps=400, warmup=40),
    Run(name="identity of 40, QK-norm 4 x 80", task="identity(symbols=40)", steps=400, rate=1e-3,
        recipe=_model(4, 80, attention="multihead(qk_norm=head)")),
    Run(name="sorting, post-norm 8 x 64", recipe=_model(8, 64, placement="post"), steps=400,
        rate=1.5e-3, warmup=100),
    Run(name="text, post-norm rotary 4 x 64", task="stdlib", batch=8, rate=1e-3, warmup=80, steps=400,
        recipe=_model(4, 64, placement="post", positions="rotary"), decay=0.05),
    Run(name="text, SGD 5 x 64, clipped", task="stdlib", recipe=_model(5, 64), batch=8,
        optimizer="sgd", rate=0.2, warmup=40, clip=1.0, steps=400),
    Run(name="copy of 12, trained on, 6 x 64", task="copy(symbols=12,items=12)", recipe=_model(6, 64),
        before=200, rate=5e-4, beta2=0.999, noise=0.01, steps=400),
    Run(name="sums, pre-norm 5 x 48", task="addition(p=37)", recipe=_model(5, 48), rate=1e-3,
        batch=32, steps=400),
]  # fmt: skip

TUNING = _by_seed(_TUNING_FAILURES, (100, 101, 102)) + _by_seed(_TUNING_HEALTHY, (100, 101))
# Seeds 0 to 4 were scored once with earlier alarms, so these are others.
SCORING = _by_seed(_SCORING_FAILURES, range(5, 10)) + [
    replace(run, seed=5 + index % 5) for index, run in enumerate(_SCORING_HEALTHY)
]
SETS = {"tuning": TUNING, "scoring": SCORING}
