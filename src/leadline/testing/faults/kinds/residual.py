"""Faults of the residual connection: slips in the line that adds a branch to the stream."""

from __future__ import annotations

from typing import Any

from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.rewriting import Edit, rewrite
from leadline.testing.faults.subject import Subject

_ROLES = ("attention", "mlp")


def adds(host: Host) -> bool:
    """Whether the code that adds is known, and adds plainly."""
    return host.has("plain-residual") and bool(host.layout.additions)


def serial(host: Host) -> bool:
    """Whether attention and MLP are added one after the other."""
    return adds(host) and host.layout.addition("mlp") is not None


def _serial_pre(host: Host) -> bool:
    return serial(host) and host.layout.placement == "pre"


def _after_norm(host: Host) -> bool:
    return adds(host) and all(one.after_norm for one in host.layout.additions)


def _changed(subject: Subject, new: str, *, role: str = "") -> FaultSite:
    """Rewrite one addition of an inner layer."""
    layer = subject.inner_layer()
    role = role or subject.role()
    subject.edit(layer, role, new)
    parallel = subject.addition(role).role == "both"
    return FaultSite((layer,), sublayer=None if parallel else role)


def _changed_everywhere(subject: Subject, new: str) -> FaultSite:
    for layer in subject.layers:
        subject.edit_all(layer, new)
    return FaultSite()


@fault("skip-missing-attention", "residual-missing", fits=serial)
def skip_missing_attention(subject: Subject) -> FaultSite:
    """x = attention(x) in one layer."""
    return _changed(subject, "{update}", role="attention")


@fault("skip-missing-mlp", "residual-missing", fits=serial)
def skip_missing_mlp(subject: Subject) -> FaultSite:
    """x = mlp(x) in one layer."""
    return _changed(subject, "{update}", role="mlp")


@fault("skip-missing-everywhere", "residual-missing", fits=adds)
def skip_missing_everywhere(subject: Subject) -> FaultSite:
    """No layer adds what it read."""
    return _changed_everywhere(subject, "{update}")


@fault(
    "skip-missing-parallel",
    "residual-missing",
    fits=lambda host: adds(host) and host.layout.addition("both") is not None,
)
def skip_missing_parallel(subject: Subject) -> FaultSite:
    """x = attention(x) + mlp(x) in one layer of a parallel design."""
    return _changed(subject, "{update}")


@fault("skip-doubled", "residual-doubled", "residual-weight-odd", fits=adds)
def skip_doubled(subject: Subject) -> FaultSite:
    """x = x + (x + f(x)): the branch adds it already, and the block once more."""
    return _changed(subject, "{stream} + ({stream} + {update})")


@fault(
    "skip-doubled-everywhere",
    "residual-doubled",
    "residual-scale-wrong",
    "stream-exploding",
    fits=_serial_pre,
)
def skip_doubled_everywhere(subject: Subject) -> FaultSite:
    """The same in every layer of a pre-norm model: the stream doubles at every write."""
    return _changed_everywhere(subject, "{stream} + ({stream} + {update})")


def _take_after_norm(subject: Subject, layer: int, role: str) -> None:
    one = subject.addition(role)
    assert one.after_norm is not None
    old, new = one.after_norm
    rewrite(subject.owner(layer, one), Edit(old, new, kind="statement"))


@fault("skip-after-norm", "residual-from-wrong-point", fits=_after_norm)
def skip_after_norm(subject: Subject) -> FaultSite:
    """x = N(x) + f(N(x)) in one sublayer: the stream is saved one line too late."""
    layer, role = subject.inner_layer(), subject.role()
    _take_after_norm(subject, layer, role)
    parallel = subject.addition(role).role == "both"
    return FaultSite((layer,), sublayer=None if parallel else role)


@fault("skip-after-norm-everywhere", "residual-from-wrong-point", fits=_after_norm)
def skip_after_norm_everywhere(subject: Subject) -> FaultSite:
    """x = N(x) + f(N(x)) in every sublayer."""
    for layer in subject.layers:
        for one in subject.layout.additions:
            _take_after_norm(subject, layer, one.role)
    return FaultSite()


def _one_forward(host: Host) -> bool:
    """Whether both additions stand in the block's own code, on tensors of one shape."""
    whole = all(one.owner == "" for one in host.layout.additions)
    return serial(host) and whole and host.name != "opt"


@fault("skip-from-block-input", "residual-from-wrong-point", "write-lost", fits=_one_forward)
def skip_from_block_input(subject: Subject) -> FaultSite:
    """The MLP is added to what entered the block, so the attention's write is lost."""
    layer, one = subject.inner_layer(), subject.addition("mlp")
    rewrite(
        subject.owner(layer, one),
        Edit(one.add, f"block_input + {one.update}", place=one.place),
        Edit("", f"block_input = {subject.layout.argument}", kind="start"),
    )
    return FaultSite((layer,))


def _lost(subject: Subject, new: str, *, role: str = "") -> FaultSite:
    """Compute the update of one sublayer and do not use it."""
    layer, role = subject.inner_layer(), role or subject.role()
    one = subject.addition(role)
    if one.normed in one.update:
        # The branch is called in the addition itself: without this line it would not run at all.
        line = f"{one.stream} = {one.add}"
        lines = f"y = {one.update}\n{one.stream} = {new.format(stream=one.stream)}"
        rewrite(subject.owner(layer, one), Edit(line, lines, kind="statement"))
    else:
        subject.edit(layer, role, new)
    return FaultSite((layer,), sublayer=None if one.role == "both" else role)


_LOST = ("write-lost", "write-dead", "gradient-cut")


@fault("write-lost-attention", *_LOST, fits=serial)
def write_lost_attention(subject: Subject) -> FaultSite:
    """The attention is computed and its update is not added."""
    return _lost(subject, "{stream}", role="attention")


@fault("write-lost-mlp", *_LOST, fits=serial)
def write_lost_mlp(subject: Subject) -> FaultSite:
    """The MLP is computed and its update is not added."""
    return _lost(subject, "{stream}", role="mlp")


@fault("stream-added-to-itself", "write-lost", "residual-doubled", "write-dead", fits=adds)
def stream_added_to_itself(subject: Subject) -> FaultSite:
    """x = x + x: the update has another name and is never used."""
    return _lost(subject, "{stream} + {stream}")


@fault("write-halved", "residual-weight-odd", fits=adds)
def write_halved(subject: Subject) -> FaultSite:
    """One sublayer adds half of its update."""
    return _changed(subject, "{stream} + 0.5 * {update}")


@fault("write-added-twice", "residual-weight-odd", fits=adds)
def write_added_twice(subject: Subject) -> FaultSite:
    """One sublayer adds its update twice."""
    return _changed(subject, "{stream} + 2 * {update}")


@fault("write-negated", "residual-weight-odd", fits=adds)
def write_negated(subject: Subject) -> FaultSite:
    """One sublayer subtracts its update."""
    return _changed(subject, "{stream} - {update}")


@fault("stream-halved", "residual-weight-odd", fits=adds)
def stream_halved(subject: Subject) -> FaultSite:
    """One sublayer keeps half of the stream."""
    return _changed(subject, "0.5 * {stream} + {update}")


@fault(
    "stream-halved-everywhere",
    "residual-scale-wrong",
    "residual-weight-odd",
    "gradient-vanishing",
    fits=_serial_pre,
)
def stream_halved_everywhere(subject: Subject) -> FaultSite:
    """Every sublayer keeps half of the stream."""
    return _changed_everywhere(subject, "0.5 * {stream} + {update}")


@fault(
    "layer-scale-zero",
    "residual-weight-odd",
    "weights-zero",
    "write-dead",
    fits=lambda host: host.has("layerscale"),
)
def layer_scale_zero(subject: Subject) -> FaultSite:
    """The learned gain of one sublayer is zero."""
    layer, role = subject.inner_layer(), subject.role()
    gain = subject.module(layer, f"{role}.connection").scale
    gain.zero_()  # type: ignore[operator]
    name = subject.path(layer, f"{role}.connection.scale")
    return FaultSite((layer,), sublayer=role, parameter=name)


def _is_deepnorm(host: Host) -> bool:
    return host.has("deepnorm")


@fault("alpha-on-branch", "residual-scale-wrong", fits=_is_deepnorm)
def alpha_on_branch(subject: Subject) -> FaultSite:
    """DeepNorm's alpha multiplies the update instead of the stream."""
    for layer in subject.layers:
        for role in _ROLES:
            connection: Any = subject.module(layer, f"{role}.connection")
            connection.keep, connection.gain = 1.0, connection.keep
    return FaultSite()


@fault("alpha-exponent-half", "residual-scale-wrong", fits=_is_deepnorm)
def alpha_exponent_half(subject: Subject) -> FaultSite:
    """DeepNorm's alpha is (2 L)^(1/2) instead of (2 L)^(1/4)."""
    for layer in subject.layers:
        for role in _ROLES:
            connection: Any = subject.module(layer, f"{role}.connection")
            connection.keep = connection.keep**2
    return FaultSite()


@fault("lanes-doubled", "lanes-gain", "stream-exploding", fits=lambda host: host.has("lanes"))
def lanes_doubled(subject: Subject) -> FaultSite:
    """Every hyper-connection mixes its lanes with twice the identity."""
    for layer in subject.layers:
        _double_lanes(subject, layer)
    return FaultSite()


@fault(
    "lanes-doubled-one-layer",
    "lanes-gain",
    "residual-weight-odd",
    "weights-scale-odd",
    fits=lambda host: host.has("lanes"),
)
def lanes_doubled_one_layer(subject: Subject) -> FaultSite:
    """The hyper-connections of one layer mix with twice the identity."""
    layer = subject.inner_layer()
    _double_lanes(subject, layer)
    return FaultSite((layer,))


def _double_lanes(subject: Subject, layer: int) -> None:
    for role in _ROLES:
        subject.module(layer, f"{role}.connection").static_mix.mul_(2.0)  # type: ignore[operator]
