"""What every attention of one pass is: its heads, its scaling, what its mask lets through.

Heads are compared to rounding: queries, keys and values of two heads that are equal for all tokens
make two equal heads. The scaling is that between the projections and the logits, whoever applied it:
what multiplies the queries before the product counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from leadline.anatomy import AttentionSpy, SeenAttention
from leadline.anatomy.tap.projections import Source
from leadline.instruments.passes.running import call
from leadline.instruments.visit.tokens.rounding import rounding
from leadline.instruments.visit.tokens.visibility import masked_logits, visibility
from leadline.models.inputs import Inputs

__all__ = ["AttentionCalls", "attention_calls"]

LARGEST_TABLE = 8192
"""Tables of more rows hold tokens rather than positions and are not searched."""


@dataclass
class AttentionCalls:
    """What was seen of the attention of one pass."""

    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Every attention as JSON."""
    takes_tokens: set[str] = field(default_factory=set[str])
    """The modules that are handed a tensor [example, token, ...]."""
    odd_softmax: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Softmax of a matrix of tokens over another axis than its last: module and axis."""
    lookups: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Which rows each table gave for the first example, one for each token."""


def attention_calls(
    model: nn.Module,
    inputs: Inputs,
    mask: Tensor | None,
    *,
    forward: Callable[[], object] | None = None,
) -> AttentionCalls:
    """One pass without gradients, with every attention and every table looked at.

    `mask` is [example, token], True for real tokens. `forward` runs the pass where more is read
    from it.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    seen = AttentionCalls()
    examples = inputs.main.shape[0] if inputs.main.ndim else None

    def listen(attention: SeenAttention) -> None:
        seen.entries.append(_entry(attention, modules, mask))

    # Images and volumes become tokens inside of the model: how many, no input says.
    lengths = {t.shape[1] for t in inputs.tensors.values() if 1 < t.ndim < 4}
    spy = AttentionSpy(model, listen, examples=lambda: examples)
    with (
        torch.no_grad(),
        spy,
        _SoftmaxAxes(spy, lengths, seen),
        _inputs_seen(modules, lengths, seen),
    ):
        call(model, inputs) if forward is None else forward()
    return seen


_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)


class _SoftmaxAxes(TorchFunctionMode):
    """Notes every softmax of a matrix of tokens by tokens that does not run over the keys."""

    def __init__(self, spy: AttentionSpy, lengths: set[int], seen: AttentionCalls) -> None:
        super().__init__()
        self.spy, self.lengths, self.seen = spy, lengths, seen

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SOFTMAX:
            logits = args[0] if args else kwargs["input"]
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            if axis is None:  # torch's own choice where none is named
                axis = 0 if logits.ndim in (0, 1, 3) else 1
            square = logits.ndim > 2 and logits.shape[-1] == logits.shape[-2]
            if (
                square
                and (not self.lengths or logits.shape[-1] in self.lengths)
                and axis % logits.ndim != logits.ndim - 1
            ):
                self.seen.odd_softmax.append(
                    {"module": self.spy.running, "axis": axis % logits.ndim - logits.ndim}
                )
        return func(*args, **kwargs)


@contextmanager
def _inputs_seen(
    modules: dict[str, nn.Module], lengths: set[int], seen: AttentionCalls
) -> Iterator[None]:
    def hook(path: str) -> Callable[..., None]:
        def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
            if any(t.is_floating_point() and t.ndim > 2 and lengths & set(t.shape[:2])
                   for t in tensors):  # fmt: skip
                seen.takes_tokens.add(path)

        return look

    def table_hook(path: str) -> Callable[..., None]:
        def look(module: nn.Module, _: Any, output: Any) -> None:
            if path not in seen.lookups and isinstance(output, Tensor) and output.ndim in (2, 3):
                given = output[0] if output.ndim == 3 else output
                if given.shape[0] in lengths and isinstance(module.weight, Tensor):
                    seen.lookups[path] = _rows_of(module.weight.detach(), given.detach())

        return look

    handles = [
        module.register_forward_pre_hook(hook(path), with_kwargs=True)
        for path, module in modules.items()
    ]
    handles += [
        module.register_forward_hook(table_hook(path))
        for path, module in modules.items()
        if isinstance(module, nn.Embedding) and module.num_embeddings <= LARGEST_TABLE
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _rows_of(table: Tensor, given: Tensor) -> list[int]:
    """Which row of the table each vector is, by its bits; -1 where it is none, -2 where it is several.

    What a table gave says more than what it was asked for: a forward may be wrapped.
    """
    if table.shape[1] != given.shape[1]:
        return [-1] * given.shape[0]
    rows: list[int] = []
    for vector in given:
        equal = (table == vector).all(1).nonzero().flatten()
        rows.append(int(equal[0]) if len(equal) == 1 else -1 if len(equal) == 0 else -2)
    return rows


def _entry(
    attention: SeenAttention, modules: dict[str, nn.Module], mask: Tensor | None
) -> dict[str, Any]:
    query = attention.query
    sources = attention.query_source, attention.key_source
    masked = masked_logits(attention)
    return {
        "module": attention.module,
        "heads": attention.heads,
        "head_width": None if query is None else query.shape[-1],
        "width": next((s.weight.shape[-1] for s in sources if s and s.weight is not None), None),
        "scaling": _scaling(attention, modules),
        "kernel_scaling": attention.scaling,
        "qk_norm": any(source is not None and source.weight is None for source in sources),
        "turned": [None if source is None else source.turned for source in sources],
        "equal_heads": _equal_heads(attention),
        "visible": None if masked is None else visibility(masked, mask),
        "drowned": masked is not None and masked.drowned,
    }


def _scaling(attention: SeenAttention, modules: dict[str, nn.Module]) -> float | None:
    """What stands between the projections' products and the logits; None where it is not known."""
    if attention.scaling is None or attention.soft_cap is not None:
        return None
    factor, lengths = attention.scaling, _RowLengths()
    for source in (attention.query_source, attention.key_source):
        one = _factor(source, modules, attention.module, lengths)
        if one is None:
            return None
        factor *= one
    return float(factor)


class _RowLengths:
    """The lengths of the rows of matrices, computed once for queries and keys."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], Tensor] = {}

    def of(self, parameter: Tensor, rows: Tensor) -> Tensor:
        """The lengths of the rows of a parameter or of its transpose."""
        key = id(parameter), rows.shape[1]
        if key not in self.known:
            # Squares are summed by hand: vector_norm is slow along the stride of a transposed matrix.
            self.known[key] = rows.square().sum(1).sqrt().clamp_min(1e-30)
        return self.known[key]


def _factor(
    source: Source | None, modules: dict[str, nn.Module], near: str, lengths: _RowLengths
) -> float | None:
    """What the vectors were multiplied with after their projection.

    Its matrix is looked for in the module of the attention first, `near`: the module that the source
    names may be the whole model.
    """
    weight = None if source is None else source.weight
    if source is None or weight is None:
        return None
    row = weight[0, 0].double()
    for parameter in _matrices(modules.get(near), modules.get(source.module)):
        matrix = parameter.detach()
        if matrix.shape[1] != len(row):
            matrix = matrix.T
        if matrix.shape[1] != len(row):
            continue
        # The best row is searched for in single precision, and it alone is looked at in double.
        single = matrix.float()
        alike = (single @ row.float()) / lengths.of(parameter, single)
        best = matrix[int(alike.abs().argmax())].double()
        size = torch.linalg.vector_norm(best).clamp_min(1e-300)
        likeness = (best @ row) / size
        if float(likeness.abs()) > (1 - 1e-5) * float(torch.linalg.vector_norm(row)):
            return float(likeness / size)
    return None


def _matrices(*modules: nn.Module | None) -> list[Tensor]:
    """The matrices of modules in their order, each once."""
    parameters = {id(p): p for one in modules if one is not None for p in one.parameters()}
    return [p for p in parameters.values() if p.ndim == 2 and p.is_floating_point()]


def _equal_heads(attention: SeenAttention) -> dict[str, Any] | None:
    """Groups of heads, counted from 1, whose queries and keys are equal to rounding; and values.

    Queries or keys that are zero throughout make no group: a design may start so.
    """
    query, key, value = attention.query, attention.key, attention.value
    if query is None or key is None or query.ndim != 4 or query.shape[1] < 2:
        return None
    heads = query.shape[1]

    def of(tensor: Tensor, head: int) -> Tensor:
        return tensor[:, head * tensor.shape[1] // heads]

    groups: list[list[int]] = []
    for head in range(heads):
        if not bool(of(query, head).any()) or not bool(of(key, head).any()):
            continue
        for group in groups:
            same = group[0] - 1
            if _equal(of(query, head), of(query, same)) and _equal(of(key, head), of(key, same)):
                group.append(head + 1)
                break
        else:
            groups.append([head + 1])
    equal = [group for group in groups if len(group) > 1]
    if not equal:
        return None
    first = equal[0]
    values = value.ndim == 4 and _equal(of(value, first[0] - 1), of(value, first[1] - 1))
    return {"groups": equal, "values": values}


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether vectors are equal but for the order in which a product sums, which is not always one."""
    if torch.equal(one, other):
        return True
    eps = torch.finfo(one.dtype).eps
    limit = rounding(eps)
    return bool((one - other).abs().amax() <= limit * one.abs().amax())
