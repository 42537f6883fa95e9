"""Values that are not finite: refused in inputs and weights, and a finding where the model makes them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from leadline.anatomy import Anatomy, Balance
from leadline.anatomy.find.trace import trace_calls
from leadline.errors import AnatomyError, InputError
from leadline.instruments.passes.running import call
from leadline.models.inputs import Inputs
from leadline.record import Finding, Record, Site

__all__ = [
    "balance_findings",
    "broken_tensor",
    "first_broken_output",
    "not_finite_findings",
    "refuse_broken",
    "refuse_broken_inputs",
    "refuse_broken_weights",
]


def refuse_broken_inputs(batch: Inputs) -> None:
    """Refuse inputs that are not finite."""
    for key, tensor in batch.tensors.items():
        if tensor.is_floating_point() and "mask" not in key and not _finite(tensor).all():
            raise InputError(f"The input '{key}' holds values that are not finite.")


def refuse_broken_weights(module: nn.Module, anatomy: Anatomy, balance: Balance) -> None:
    """Refuse weights that are not finite; if all are finite, the stream itself is the finding."""
    broken = broken_tensor(module)
    if broken is not None:
        raise AnatomyError(
            f"{broken} They reach the stream first at {_place(anatomy, *balance.unjudged[0])}."
        )


def refuse_broken(module: nn.Module, batch: Inputs) -> None:
    """Refuse inputs and weights that are not finite: shares would not be finite either."""
    refuse_broken_inputs(batch)
    broken = broken_tensor(module)
    if broken is not None:
        raise InputError(broken)


def broken_tensor(module: nn.Module) -> str | None:
    """Name the first parameter, buffer or plain tensor of a module that is not finite, or None.

    Outside of parameters infinity can be correct: masks hold minus infinity, and single numbers are
    bounds to clip at. Only NaN, and plus infinity in a table, count as broken there.
    """
    tensors = [
        *(("parameter", name, parameter) for name, parameter in module.named_parameters()),
        *(("buffer", name, buffer) for name, buffer in module.named_buffers()),
        *(
            ("tensor", f"{path}.{name}" if path else name, value)
            for path, inner in module.named_modules()
            for name, value in vars(inner).items()
            if isinstance(value, torch.Tensor)
        ),
    ]
    for kind, name, tensor in tensors:
        if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        if kind != "parameter" and not bool(_spoils(tensor).any()):
            continue
        if count := int((~_finite(tensor.detach())).sum()):
            return (
                f"The {kind} '{name}' holds values that are not finite ({count} of "
                f"{tensor.numel()}); {_MENDS[kind]}."
            )
    return None


_MENDS = {
    "parameter": "load intact weights",
    "buffer": "load intact weights, or compute it anew",
    "tensor": "compute it anew",
}


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """Which values are finite, also for sparse tensors and 8-bit floats, which torch cannot test."""
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return torch.isfinite(dense.float() if dense.itemsize == 1 else dense)


def _spoils(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor holds a value that neither a mask nor a bound would hold."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.isnan() if tensor.numel() == 1 else tensor.isnan() | tensor.isposinf()


def first_broken_output(module: nn.Module, batch: Inputs) -> str | None:
    """The first module whose output is broken, an innermost one if there is one."""
    broken = [
        module_call
        for module_call in trace_calls(module, lambda: call(module, batch))
        if module_call.returned is not None and bool(_spoils(module_call.returned).any())
    ]
    innermost = [c for c in broken if next(c.module.children(), None) is None]
    return next((c.path for c in innermost or reversed(broken)), None)


def balance_findings(record: Record, anatomy: Anatomy, balance: Balance) -> list[Finding]:
    """The findings about values that are not finite, and where they begin."""
    if balance.unjudged:
        stack, layer = balance.unjudged[0]
        return [
            Finding(
                verdict=f"The stream is not finite from {_place(anatomy, stack, layer)} on; "
                f"{len(balance.unjudged)} layers could not be judged.",
                quantity="stream.norm",
                site=Site(stack, layer),
                severity="serious",
            )
        ]
    return not_finite_findings(record, record.quantities)


def not_finite_findings(record: Record, names: Iterable[str]) -> list[Finding]:
    """One finding for each of the quantities that has a value which is not finite."""
    findings: list[Finding] = []
    broken_names = set(record.broken_quantities())
    for name in filter(broken_names.__contains__, names):
        broken = [r.site for r in record.select(name) if not abs(r.value) < float("inf")]
        if broken:
            first = min(broken, key=lambda site: (site.layer, site.sublayer or 0))
            count = len(set(broken))
            where = f"at {first}" if count == 1 else f"at {count} sites, first at {first}"
            findings.append(
                Finding(
                    verdict=f"{name} is not finite {where}{_why_not_finite(record, name, first)}.",
                    quantity=name,
                    site=first,
                    severity="serious",
                )
            )
    return findings


def _why_not_finite(record: Record, name: str, site: Site) -> str:
    """The reason where the record proves it, with a colon before it; empty where it does not."""

    def values(quantity: str) -> list[float]:
        measured = quantity in record.quantities
        return [r.value for r in record.select(quantity) if r.site == site] if measured else []

    norms = values("update.norm")
    # The ratio is NaN where a norm is, and where the stream that it divides by has none.
    if name != "update.ratio" or not norms or not all(map(math.isfinite, norms)):
        return ""
    if not any(map(math.isnan, values(name))):
        return ""
    return (
        ": the stream of a token is exactly 0 before this write (a row of the embedding that holds "
        "zeros, such as that of a padding id, makes it so), and no update can be compared with it. "
        "All other numbers hold"
    )


def _place(anatomy: Anatomy, stack: str, layer: int) -> str:
    path = next(b.module for b in anatomy.stack(stack).blocks if b.layer == layer)
    return f"{stack} layer {layer} ('{path}')"
