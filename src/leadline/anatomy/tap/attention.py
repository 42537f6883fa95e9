"""See every attention of a running forward pass, without changing it.

    with AttentionSpy(model, listener): model(...)

Attention is recorded where it is computed, not where a model says it is. Every call of a torch
function is carried out unchanged (the same kernel on the same tensors), and two kinds are kept for
a moment:

    kernel     scaled_dot_product_attention: queries, keys, values, mask, scaling, output
    weights    softmax over the last axis, followed to the product with the values; the scores are
               followed from the product of queries and keys to the softmax

so that nothing can be missing from the logits: a position bias, a soft cap or a sink has been
added by then, whatever keyword it came by. To torch, `torch.nn.MultiheadAttention` is one function;
its code is run so that the functions inside it are recorded too. A kernel that is no function of
torch cannot be recorded, and the listener is not called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from leadline.anatomy.exactness import exactly
from leadline.anatomy.kept_weights import apart_from_pass
from leadline.anatomy.tap.module_hook import ModuleHook
from leadline.anatomy.tap.output_projection import BranchProducts
from leadline.anatomy.tap.projections import Projections
from leadline.anatomy.tap.seen_attention import SeenAttention, as_products, shaped_by_example

__all__ = ["LOOKS", "AttentionListener", "AttentionSpy", "Eyes", "SeenAttention"]

Tensor = torch.Tensor


class AttentionListener(Protocol):
    """Called with every attention. Tensors are valid during the call only: reduce them at once."""

    def __call__(self, attention: SeenAttention, /) -> None: ...


@dataclass(frozen=True)
class _Track:
    """A tensor that is followed: scores on their way to the softmax, or weights behind it."""

    tensor: Tensor
    query: Tensor | None = None
    key: Tensor | None = None
    scaling: float | None = 1.0
    """What the product was multiplied with on the way; None where that is not one number."""
    capped: bool = False
    cap: float | None = None
    logits: Tensor | None = None
    """Given once the softmax has been taken."""


class AttentionSpy:
    """Call a listener for every attention that a model computes inside the `with` block.

    `examples` returns how many examples are in flight. `branches` receives every product with a
    weight matrix and every norm.
    """

    def __init__(
        self,
        model: nn.Module,
        listener: AttentionListener,
        *,
        examples: Callable[[], int | None] = lambda: None,
        projections: bool = True,
        branches: BranchProducts | None = None,
    ) -> None:
        self.listener = listener
        self.branches = branches
        self.examples = examples
        self._names = {
            id(module): name for name, module in model.named_modules(remove_duplicate=False)
        }
        self._model = model
        self._running: list[str] = []
        self._handles: list[Any] = []
        self._attending: str | None = None
        self._mode = Eyes(self)
        self.projections = Projections() if projections else None

    @property
    def running(self) -> str:
        """The path of the innermost module that is running."""
        return self._running[-1] if self._running else ""

    def __enter__(self) -> AttentionSpy:
        enter, leave = ModuleHook(self._enter), ModuleHook(self._leave)
        try:
            for module in self._model.modules():
                self._handles.append(module.register_forward_pre_hook(enter))
                self._handles.append(module.register_forward_hook(leave, always_call=True))
            self._mode.__enter__()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._mode.__exit__(*error)
        finally:
            self._release()

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._running.clear()
        self._mode.forget()
        if self.projections is not None:
            self.projections.forget()
        if self.branches is not None:
            self.branches.forget()

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._running.append(self._names.get(id(module), ""))

    def _leave(self, module: nn.Module, args: Any, output: object) -> None:
        if self._running:
            self._running.pop()
        if self.projections is not None:
            name = self._names.get(id(module), "")
            self.projections.passed(name, module, output)
            if self.branches is not None:
                self.branches.passed(module, output)
            if name == self._attending:
                # Its projections are of no use to anybody after it.
                self._attending = None
                self.projections.forget_products()

    def record_product(
        self, entered: Tensor, weight: Tensor, bias: Any, returned: Tensor, *, by_rows: bool
    ) -> None:
        """Keep a product with a weight matrix; `by_rows`: the matrix is [out, in]."""
        if self.projections is None:
            return
        product = self.projections.product(entered, weight, bias, returned, by_rows=by_rows)
        if product is not None and self.branches is not None:
            self.branches.product(product)

    def report(self, attention: SeenAttention) -> None:
        """Bring an attention into one form, find its projections, and call the listener."""
        examples = self.examples()
        shaped = shaped_by_example(attention, examples)
        if shaped is None:
            return
        if self.projections is not None:
            with exactly():
                query_source = self.projections.source(shaped.query)
                key_source = self.projections.source(shaped.key)
                value_source = None
                if self.branches is not None:
                    value_source = self.projections.source(shaped.value)
            shaped = replace(
                shaped,
                query_source=query_source,
                key_source=key_source,
                value_source=value_source,
            )
            self._attending = attention.module
        self.listener(shaped)


class Eyes(TorchFunctionMode):
    """Watches every torch function and lets it run unchanged."""

    def __init__(self, spy: AttentionSpy) -> None:
        super().__init__()
        self.spy = spy
        self._tracks: dict[int, _Track] = {}

    def forget(self) -> None:
        self._tracks.clear()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:
                return _opened(func)(*args, **kwargs)
        result = func(*args, **kwargs)
        look = LOOKS.get(func)
        if look is not None:
            with apart_from_pass(), torch._C.DisableTorchFunction(), torch.no_grad():
                look(self, result, args, kwargs)
        elif self._tracks and isinstance(result, Tensor):
            self._follow(func, result, args)
        return result

    # --- what is looked at -----------------------------------------------------------------

    def kernel(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = dict(zip(_KERNEL_ARGUMENTS, args, strict=False)) | kwargs
        self.spy.report(
            SeenAttention(
                module=self.spy.running,
                route="kernel",
                query=call["query"].detach(),
                key=call["key"].detach(),
                value=call["value"].detach(),
                output=result.detach(),
                mask=call.get("attn_mask"),
                causal=bool(call.get("is_causal", False)),
                scaling=call.get("scale"),
            )
        )

    def softmax(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        logits = args[0] if args else kwargs["input"]
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        if logits.ndim < 3 or axis not in (-1, logits.ndim - 1):
            return
        scores = self._tracks.get(id(logits), _Track(logits))
        # The scores have arrived; other weights may still be on their way to their values.
        self._tracks = {
            key: track
            for key, track in self._tracks.items()
            if track.logits is not None or track.query is not scores.query
        }
        self._tracks[id(result)] = replace(scores, tensor=result, logits=logits.detach())

    def product(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        operands = [*args, *(kwargs[k] for k in ("input", "mat1", "other", "mat2") if k in kwargs)]
        if len(operands) < 2 or not all(isinstance(operand, Tensor) for operand in operands[:2]):
            return
        first, second = operands[:2]
        track = self._tracks.get(id(first))
        if track is not None and track.logits is not None:
            self._consumed(track, second, result)
        elif second.ndim == 2 and self.spy.projections is not None:
            self.spy.record_product(first, second, None, result, by_rows=False)
        elif first.ndim >= 3 and second.ndim >= 3:
            self._score(first, second, result)

    def added_product(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """baddbmm(bias, queries, keys'), with a factor alpha for the product."""
        batches = (*args[1:], *(kwargs[k] for k in ("batch1", "batch2") if k in kwargs))
        if len(batches) >= 2:
            self._score(batches[0], batches[1], result, scaling=float(kwargs.get("alpha", 1.0)))

    def contraction(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """einsum: weights times values where the weights' last axis is summed over."""
        operands = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
        equation = str(args[0]).replace(" ", "")
        inputs, arrow, output_label = equation.partition("->")
        labels = inputs.split(",")
        if not arrow or len(labels) != 2 or len(operands) != 2:
            return
        for at, label in enumerate(labels):
            track = self._tracks.get(id(operands[at]))
            if track is not None and track.logits is not None and label[-1] not in output_label:
                value, output = as_products(
                    label, operands[1 - at], labels[1 - at], result, output_label
                )
                self._consumed(track, value, output)
                return

    def linear(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
        self.spy.record_product(
            call["input"], call["weight"], call.get("bias"), result, by_rows=True
        )

    def affine(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """addmm(bias, input, weight), the form of GPT-2's projections."""
        if len(args) == 3 and not kwargs:
            bias, entered, weight = args
            self.spy.record_product(entered, weight, bias, result, by_rows=False)

    # --- what is followed ------------------------------------------------------------------

    def _score(
        self, query: Tensor, transposed_key: Tensor, result: Tensor, *, scaling: float = 1.0
    ) -> None:
        self._tracks[id(result)] = _Track(
            result,
            query=query.detach(),
            key=transposed_key.detach().transpose(-1, -2),
            scaling=scaling,
        )
        # A model that never takes a softmax of them must not make us keep its products.
        while len(self._tracks) > _FOLLOWED:
            del self._tracks[next(iter(self._tracks))]

    def _follow(self, func: Any, result: Tensor, args: tuple[Any, ...]) -> None:
        operands = args[0] if args and isinstance(args[0], (tuple, list)) else args
        for operand in operands[:2]:
            track = self._tracks.get(id(operand)) if isinstance(operand, Tensor) else None
            if track is None:
                continue
            if track.logits is not None and not _still_weights(track.logits, result):
                continue
            if result.ndim < 3:
                continue
            followed = replace(track, tensor=result)
            if track.logits is None:
                followed = _with_factor(_with_cap(followed, func, args), func, args)
            self._tracks[id(result)] = followed
            return

    def _consumed(self, track: _Track, value: Tensor, output: Tensor) -> None:
        weights, logits = track.tensor, track.logits
        assert logits is not None
        self._tracks = {key: one for key, one in self._tracks.items() if one.logits is not logits}
        key_logits = logits[..., : weights.shape[-1]]
        if weights.ndim < 3 or not _still_weights(logits, weights):
            return
        if key_logits.numel() != weights.numel():
            return
        sink = logits.shape[-1] == weights.shape[-1] + 1
        query, key = track.query, track.key
        if query is not None and key is not None:
            # Indexing or joining may have made other scores of those that were followed.
            score_count = query.numel() // query.shape[-1] * key.shape[-2]
            if key.shape[-2] != weights.shape[-1] or score_count != weights.numel():
                query = key = None
        self.spy.report(
            SeenAttention(
                module=self.spy.running,
                route="weights",
                query=query,
                key=key,
                value=value.detach(),
                output=output.detach(),
                scaling=track.scaling,
                soft_cap=track.cap if track.capped else None,
                logits=key_logits.reshape(weights.shape),
                weights=weights.detach(),
                sink=sink,
            )
        )


_FOLLOWED = 16
"""Most products of queries and keys that wait for their softmax."""
_KERNEL_ARGUMENTS = (
    "query",
    "key",
    "value",
    "attn_mask",
    "dropout_p",
    "is_causal",
    "scale",
    "enable_gqa",
)

LOOKS: dict[Any, Callable[[Eyes, Any, tuple[Any, ...], dict[str, Any]], None]] = {
    F.scaled_dot_product_attention: Eyes.kernel,
    F.linear: Eyes.linear,
    torch.addmm: Eyes.affine,
    **dict.fromkeys((torch.baddbmm, Tensor.baddbmm), Eyes.added_product),
    torch.einsum: Eyes.contraction,
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), Eyes.softmax),
    **dict.fromkeys(
        (
            torch.matmul,
            torch.bmm,
            Tensor.matmul,
            Tensor.bmm,
            Tensor.__matmul__,
        ),
        Eyes.product,
    ),
}
"""What is looked at, by the function that returned it."""


@cache
def _opened(func: Any) -> FunctionType:
    """The function's code without its own dispatch to modes, so that the mode sees what it calls."""
    blind = {**func.__globals__, "has_torch_function": lambda *_: False}
    opened = FunctionType(func.__code__, blind, func.__name__, func.__defaults__, func.__closure__)
    opened.__kwdefaults__ = func.__kwdefaults__
    return opened


def _still_weights(logits: Tensor, weights: Tensor) -> bool:
    """Whether the rows are still there; a sink's column may have gone, axes may be split."""
    return (
        weights.ndim >= 3
        and weights.shape[-2] == logits.shape[-2]
        and weights.shape[-1] in (logits.shape[-1], logits.shape[-1] - 1)
    )


def _with_cap(track: _Track, func: Any, args: tuple[Any, ...]) -> _Track:
    """c tanh(scores / c): the number that multiplies right after the tanh is the cap."""
    if func in (torch.tanh, Tensor.tanh, F.tanh):
        return replace(track, capped=True)
    if track.capped and track.cap is None and func in (Tensor.mul, torch.mul, Tensor.__mul__):
        number = next((x for x in args if isinstance(x, (int, float))), None)
        return replace(track, cap=None if number is None else float(number))
    return track


_TIMES = (Tensor.mul, torch.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.mul_, Tensor.__imul__)
_OVER = (Tensor.div, torch.div, Tensor.__truediv__, Tensor.div_, Tensor.__itruediv__)


def _with_factor(track: _Track, func: Any, args: tuple[Any, ...]) -> _Track:
    """Multiply what the product has been multiplied with so far."""
    if track.scaling is None or func not in (*_TIMES, *_OVER):
        return track
    other = next((x for x in args[:2] if x is not track.tensor and not _is_scores(x)), None)
    if isinstance(other, Tensor) and other.numel() == 1:
        other = float(other)
    if not isinstance(other, (int, float)) or other == 0:
        return replace(track, scaling=None)
    factor = float(other) if func in _TIMES else 1.0 / float(other)
    return replace(track, scaling=track.scaling * factor)


def _is_scores(operand: Any) -> bool:
    return isinstance(operand, Tensor) and operand.ndim >= 3
