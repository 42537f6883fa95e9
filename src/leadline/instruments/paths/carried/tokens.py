"""Whose each number of a tensor is: the token that it belongs to, followed through a pass.

A number of the stream belongs to one token, example * tokens + token. Shapes move it with its
owner; sums and products within a token keep it; a product of queries and keys belongs to two, the
token that asks and the token that is asked. So it is seen, and not guessed from shapes, whether

    y_i = sum_j P_ij v_j        P_ij belongs to (i, j), v_j to j

is a hop of attention: the sum runs over the tokens of v, and P says for the same tokens how much.
A matrix over features that was computed from the stream (linear attention in the order q (k' v),
experts, weights made of the mean token) is none. Sums over tokens with other weights have no
owner; inside a block they are not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

__all__ = [
    "ALLOCATED",
    "CHOOSING",
    "NOBODY",
    "Meeting",
    "Tokens",
    "follow_owners",
    "is_own_gate",
    "meeting",
    "owners",
]

Tensor = torch.Tensor
Tokens = tuple[Tensor, ...]
"""Owners [*shape], one tensor for each token that a number belongs to; empty: not known."""
NOBODY = -1
"""The owner of what came from no token: padding, learned keys and values."""
MOST = 4
"""A number with more owners than this is not followed; a pattern has two."""

_RESHAPED = ("_reshape_alias", "_unsafe_view", "view")
_MOVED = (
    "diagonal",
    "expand",
    "flip",
    "gather",
    "index",
    "index_select",
    "permute",
    "repeat",
    "roll",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
)
_IN_PLACE = ("_to_copy", "alias", "clone", "detach", "lift_fresh", "tril", "triu")
"""These work element by element, though torch does not tag them as pointwise."""
_SOFTMAX = ("_log_softmax", "_safe_softmax", "_softmax")


ALLOCATED = (
    "empty_like",
    "full_like",
    "new_empty",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones_like",
    "zeros_like",
)
"""Memory that others write into; what is written brings its owners with it."""


CHOOSING = ("gather", "index", "index_select")
"""These move numbers to where the content of another tensor says."""


class Meeting(NamedTuple):
    """A pattern that met values: who asks [..., row] and who is asked [..., column].

    `queries` is None where those who ask are no tokens (a learned query).
    """

    queries: Tensor | None
    keys: Tensor


def owners(x: Tensor, *, token_axis: int) -> Tensor:
    """The owners of a stream [example, token, width], [token, example, width] or [token, width]."""
    places = x.shape[:-1]
    turned = len(places) == 2 and token_axis == 0
    shape = places[::-1] if turned else places
    numbers = torch.arange(places.numel(), device=x.device, dtype=torch.int32).view(shape)
    return (numbers.T if turned else numbers).unsqueeze(-1).expand(x.shape)


def follow_owners(
    func: Any, arguments: Sequence[tuple[Any, Tokens, bool]], args: Any, kwargs: Any, out: Any
) -> list[Tokens]:
    """The owners of an operation's results, in their order.

    `arguments` has every tensor among the arguments with its owners and whether it counts: what
    multiplies a carried tensor does not decide whose the product is. `args` hold plain values.
    """
    name = func.overloadpacket.__name__
    results: list[Any] = [out] if isinstance(out, Tensor) else list(out)
    nothing: list[Tokens] = [()] * len(results)
    first = arguments[0][1] if arguments else ()
    if name in _RESHAPED:
        return [tuple(one.reshape(out.shape) for one in first)]
    if name in _MOVED:
        moved = [func(one, *args[1:], **kwargs) for one in first]
        columns = [moved] if isinstance(out, Tensor) else list(zip(*moved, strict=True))
        return [tuple(column) for column in columns] if moved else nothing
    if name in ALLOCATED:
        return [(torch.full(out.shape, NOBODY, dtype=torch.int32, device=out.device),)]
    if name == "copy":
        return [tuple(one.expand(out.shape) for one in arguments[1][1])]
    if name == "view_as_complex":
        return [tuple(one.select(-1, 0) for one in first if _one_along(one, -1))]
    if name == "view_as_real":
        return [tuple(one.unsqueeze(-1).expand(out.shape) for one in first)]
    if name == "constant_pad_nd":
        return [tuple(func(one, args[1], NOBODY) for one in first)]
    if name in ("cat", "stack"):
        return [_side_by_side(func, arguments, args, kwargs)]
    if name in ("mm", "bmm"):
        return [_contracted(arguments[0][1], arguments[1][1], out.shape)]
    if name in ("addmm", "baddbmm"):
        met = _contracted(arguments[1][1], arguments[2][1], out.shape)
        return [
            _united([met, arguments[0][1]], out.shape, agreeing=any(one[2] for one in arguments))
        ]
    if name == "native_layer_norm":
        axes = range(-len(args[1]), 0)
        return [first if all(_one_along(one, a) for one in first for a in axes) else (), (), ()]
    if torch.Tag.pointwise in func.tags or name in _IN_PLACE:
        return [_element_by_element(arguments, one.shape) for one in results]
    if name in _SOFTMAX:
        # A pattern: the sum over the keys of one query. A softmax of one token's numbers over
        # several tokens belongs to none of them.
        return [first if len(first) > 1 or all(_one_along(one, args[1]) for one in first) else ()]
    return [_reduced(first, _axes(func, args, kwargs), one) for one in results]


def meeting(pattern: Tokens, values: Tokens, *, from_left: bool) -> Meeting | None:
    """pattern @ values (or values @ pattern): whether it sums over the tokens of the values."""
    if len(values) != 1:
        return None
    features, column = (-1, -1) if from_left else (-2, -2)
    if not _one_along(values[0], features):
        return None
    keys = values[0].select(features, 0)
    if keys.shape[-1] > 1 and _one_along(keys, -1):
        return None
    key_owners = keys.unsqueeze(-2 if from_left else -1)
    if not any(bool((one == key_owners).all()) for one in pattern):
        return None
    asking = [one.select(column, 0) for one in pattern if _one_along(one, column)]
    asking = [one for one in asking if bool((one != NOBODY).any())]
    # Copies, so that the owners of whole tensors are not kept for the rest of the pass.
    return Meeting(asking[0].clone() if asking else None, keys.clone())


def is_own_gate(factor: Tokens, gated: Tokens, shape: torch.Size) -> bool:
    """Whether a factor was made of the tokens that it multiplies, each of its own."""
    if len(gated) != 1:
        return False
    owner = gated[0].expand(shape)
    others = [one for one in factor if bool((one != NOBODY).any())]
    return bool(factor) and all(_equal(one.expand(shape), owner) for one in others)


# --- how owners go through an operation -----------------------------------------------------------


def _one_along(label: Tensor, axis: int) -> bool:
    """Whether all along an axis belong to one token."""
    if label.shape[axis] == 1 or label.stride(axis) == 0:
        return True
    return label.numel() > 0 and bool((label == label.narrow(axis, 0, 1)).all())


def _axes(func: Any, args: Any, kwargs: Any) -> list[int] | None:
    """Along which axes an operation goes; None: all of them, or it does not say."""
    for at, argument in enumerate(func._schema.arguments):
        if argument.name == "dim":
            axes = args[at] if at < len(args) else kwargs.get("dim")
            return [axes] if isinstance(axes, int) else list(axes or []) or None
    return None


def _reduced(tokens: Tokens, axes: list[int] | None, out: Any) -> Tokens:
    """What goes along some axes: it belongs to those who have all of them to themselves."""
    reduced: list[Tensor] = []
    for one in tokens:
        over = list(range(one.ndim)) if axes is None else axes
        if not isinstance(out, Tensor) or not all(_one_along(one, axis) for axis in over):
            continue
        if out.shape == one.shape:
            reduced.append(one)
            continue
        kept = one
        for axis in over:
            kept = kept.narrow(axis, 0, 1)
        if kept.numel() == out.numel():
            reduced.append(kept.reshape(out.shape))
    return tuple(reduced)


def _contracted(left: Tokens, right: Tokens, shape: torch.Size) -> Tokens:
    rows = [one.narrow(-1, 0, 1) for one in left if one.shape[-1] and _one_along(one, -1)]
    columns = [one.narrow(-2, 0, 1) for one in right if one.shape[-2] and _one_along(one, -2)]
    return _united([tuple(rows), tuple(columns)], shape)


def _element_by_element(arguments: Sequence[tuple[Any, Tokens, bool]], shape: torch.Size) -> Tokens:
    try:
        if torch.broadcast_shapes(*(tensor.shape for tensor, _, _ in arguments)) != shape:
            return ()
    except RuntimeError:
        return ()
    decisive = [one for one in arguments if one[2]]
    return _united(
        [tokens for _, tokens, _ in decisive or arguments], shape, agreeing=bool(decisive)
    )


def _united(groups: Sequence[Tokens], shape: torch.Size, *, agreeing: bool = False) -> Tokens:
    """All owners of all groups, each once. `agreeing`: there must be one, the same for all."""
    distinct: list[Tensor] = []
    for label in (one for group in groups for one in group):
        one = label if label.shape == shape else label.expand(shape)
        if not any(_equal(one, other) for other in distinct):
            distinct.append(one)
    if len(distinct) > (1 if agreeing else MOST):
        return ()
    return tuple(distinct)


def _equal(one: Tensor, other: Tensor) -> bool:
    same = one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
    return same or torch.equal(one, other)


def _side_by_side(
    func: Any, arguments: Sequence[tuple[Any, Tokens, bool]], args: Any, kwargs: Any
) -> Tokens:
    there = [one for one in arguments if tuple(one[0].shape) != (0,)]
    count = max((len(tokens) for _, tokens, _ in there), default=0)
    if any(len(tokens) not in (0, count) for _, tokens, _ in there):
        return ()
    joined: list[Tensor] = []
    for at in range(count):
        pieces = [
            tokens[at]
            if tokens
            else torch.full(tensor.shape, NOBODY, dtype=torch.int32, device=tensor.device)
            for tensor, tokens, _ in there
        ]
        joined.append(func(pieces, *args[1:], **kwargs))
    return tuple(joined)
