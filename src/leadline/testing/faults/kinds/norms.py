"""Faults of norms: missing, in the wrong place, wrong gains, wrong eps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.errors import InputError
from leadline.testing.faults.fault import FaultSite, fault
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.kinds.residual import adds, serial
from leadline.testing.faults.rewriting import Edit, rewrite
from leadline.testing.faults.subject import Subject


def _has_norm_code(host: Host) -> bool:
    known = [one.normed for one in host.layout.additions]
    # What two sublayers call by one name would have to be told apart.
    return bool(known) and all(known) and not host.has("lanes")


def _without_norm(subject: Subject, layer: int, role: str) -> None:
    one = subject.addition(role)
    rewrite(subject.owner(layer, one), Edit(one.normed, one.bare))


def _missing(subject: Subject, role: str) -> FaultSite:
    layer = subject.inner_layer()
    _without_norm(subject, layer, role)
    return FaultSite((layer,), sublayer=role, parameter=_name(subject, layer, role))


def _name(subject: Subject, layer: int, role: str) -> str:
    return subject.path(layer, subject.layout.norms[role])


def _serial_norms(host: Host) -> bool:
    return _has_norm_code(host) and host.layout.addition("mlp") is not None


@fault("norm-missing-attention", "norm-missing", "parameters-unused", fits=_serial_norms)
def norm_missing_attention(subject: Subject) -> FaultSite:
    """The attention of one layer reads or leaves the stream without its norm."""
    return _missing(subject, "attention")


@fault("norm-missing-mlp", "norm-missing", "parameters-unused", fits=_serial_norms)
def norm_missing_mlp(subject: Subject) -> FaultSite:
    """The MLP of one layer reads or leaves the stream without its norm."""
    return _missing(subject, "mlp")


@fault("norms-missing-everywhere", "norm-missing", "parameters-unused", fits=_has_norm_code)
def norms_missing_everywhere(subject: Subject) -> FaultSite:
    """No block uses the norms that it has."""
    for layer in subject.layers:
        for one in subject.layout.additions:
            _without_norm(subject, layer, one.role)
    return FaultSite()


def _has_final(host: Host) -> bool:
    return bool(host.layout.outer.final) and host.kind == "decoder"


@fault("final-norm-missing", "norm-missing", "parameters-unused", fits=_has_final)
def final_norm_missing(subject: Subject) -> FaultSite:
    """The norm before the head is built and never called."""
    path = subject.layout.outer.final
    owner, _, name = path.rpartition(".")
    body = subject.model.get_submodule(owner)
    if subject.host.has("recipe"):
        edit = Edit("x if self.norm is None else self.norm(x)", "x")
        rewrite(body, edit, method="stream")
        return FaultSite(parameter=path)
    for stream in ("hidden_states", "x", "h"):
        try:
            rewrite(body, Edit(f"self.{name}({stream})", stream))
        except InputError:
            continue
        return FaultSite(parameter=path)
    raise InputError(f"The code of {type(body).__name__} does not call its {name} on the stream.")


def _plain_pre(host: Host) -> bool:
    return serial(host) and _has_norm_code(host) and host.layout.placement == "pre"


@fault("norm-after-addition", "norm-misplaced", fits=_plain_pre)
def norm_after_addition(subject: Subject) -> FaultSite:
    """One sublayer of a pre-norm model norms the sum instead of what its branch reads."""
    layer, role = subject.inner_layer(), subject.role()
    one = subject.addition(role)
    if one.normed in one.update:
        bare = one.update.replace(one.normed, one.bare)
        edits = [Edit(one.add, f"{one.norm}({one.stream} + {bare})", place=one.place)]
    else:
        summed = f"{one.norm}({one.stream} + ({one.update}))"
        edits = [Edit(one.normed, one.bare), Edit(one.add, summed, place=one.place)]
    rewrite(subject.owner(layer, one), *edits)
    return FaultSite((layer,), sublayer=role)


@fault(
    "norm-before-branch",
    "norm-misplaced",
    fits=lambda host: adds(host) and host.has("recipe") and host.layout.placement == "post",
)
def norm_before_branch(subject: Subject) -> FaultSite:
    """One sublayer of a post-norm model norms what its branch reads instead of the sum."""
    layer, role = subject.inner_layer(), subject.role()
    one = subject.addition(role)
    rewrite(
        subject.owner(layer, one),
        Edit(one.normed, one.bare),
        Edit("x if enter is None else enter(x)", "settle(x)"),
    )
    return FaultSite((layer,), sublayer=role)


# --- gains ------------------------------------------------------------------------------------


def _gain(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def _set_gain(subject: Subject, module: nn.Module, gain: Tensor | float) -> None:
    """Store a gain as the family stores it."""
    weight = _gain(module)
    weight.copy_(torch.as_tensor(gain - subject.layout.gain_offset).expand_as(weight))


def _scaled_gain(subject: Subject, factor: float) -> FaultSite:
    layer = subject.inner_layer()
    role = subject.random.choice(list(subject.layout.norms))
    norm = subject.norm(layer, role)
    _set_gain(subject, norm, factor * (_gain(norm) + subject.layout.gain_offset))
    return FaultSite((layer,), parameter=_name(subject, layer, role) + ".weight")


@fault("gain-plus-one", "norm-gain-shifted")
def gain_plus_one(subject: Subject) -> FaultSite:
    """One is added to every gain: a conversion from or to gains that are stored less one."""
    for _, _, norm in subject.norms():
        _gain(norm).add_(1.0)
    if subject.layout.outer.final:
        _gain(subject.outer("final")).add_(1.0)
    return FaultSite()


@fault("gain-plus-one-in-blocks", "norm-gain-shifted")
def gain_plus_one_in_blocks(subject: Subject) -> FaultSite:
    """One is added to the gains of the blocks; the last norm is right."""
    for _, _, norm in subject.norms():
        _gain(norm).add_(1.0)
    return FaultSite()


@fault("gain-zero-in-blocks", "norm-gain-small", "write-dead", "weights-zero")
def gain_zero_in_blocks(subject: Subject) -> FaultSite:
    """Every gain of the blocks is zero: stored less one, read as it stands."""
    for _, _, norm in subject.norms():
        _set_gain(subject, norm, 0.0)
    return FaultSite()


@fault("gain-drawn-small", "norm-gain-small")
def gain_drawn_small(subject: Subject) -> FaultSite:
    """Every gain of the blocks is drawn from N(0, 0.02), as if it were a matrix."""
    for _, _, norm in subject.norms():
        noise = torch.randn(_gain(norm).shape, generator=subject.generator)
        _set_gain(subject, norm, 0.02 * noise)
    return FaultSite()


@fault(
    "gain-zero-one-norm",
    "norm-gain-small",
    "norm-gain-odd",
    "weights-zero",
    "write-dead",
)
def gain_zero_one_norm(subject: Subject) -> FaultSite:
    """The gain of one norm is zero."""
    return _scaled_gain(subject, 0.0)


@fault("gain-times-8", "norm-gain-odd")
def gain_times_8(subject: Subject) -> FaultSite:
    """The gain of one norm is eight times as large."""
    return _scaled_gain(subject, 8.0)


@fault("gain-over-8", "norm-gain-odd")
def gain_over_8(subject: Subject) -> FaultSite:
    """The gain of one norm is an eighth."""
    return _scaled_gain(subject, 1 / 8)


# --- eps --------------------------------------------------------------------------------------


def _set_eps(norm: nn.Module, eps: float) -> None:
    name = next(one for one in ("eps", "variance_epsilon") if hasattr(norm, one))
    setattr(norm, name, eps)


def _reads_small_stream(host: Host) -> bool:
    """Whether norms divide by a mean square far below one: at initialisation, before branches."""
    return (
        not host.trained
        and host.layout.placement in ("pre", "output")
        and host.kind == "decoder"
        and not host.has("lanes")
    )


@fault("eps-large", "norm-eps-large", fits=_reads_small_stream)
def eps_large(subject: Subject) -> FaultSite:
    """Every norm has an eps of 0.1."""
    for _, _, norm in subject.norms():
        _set_eps(norm, 0.1)
    _set_eps(subject.outer("final"), 0.1)
    return FaultSite()


@fault("eps-large-one-norm", "norm-eps-large", fits=_reads_small_stream)
def eps_large_one_norm(subject: Subject) -> FaultSite:
    """One norm has an eps of 1."""
    layer = subject.inner_layer()
    role = subject.random.choice(list(subject.layout.norms))
    _set_eps(subject.norm(layer, role), 1.0)
    return FaultSite((layer,), parameter=_name(subject, layer, role))


@fault(
    "norm-over-examples",
    "examples-mixed",
    fits=lambda host: host.name != "opt" and not host.has("lanes"),
)
def norm_over_examples(subject: Subject) -> FaultSite:
    """One norm takes mean and variance over the examples, as a BatchNorm does, not over features."""
    layer = subject.inner_layer()
    role = subject.random.choice(list(subject.layout.norms))
    norm = subject.norm(layer, role)
    offset = subject.layout.gain_offset

    def over_examples(_forward: object, module: nn.Module, x: Tensor) -> Tensor:
        centred = x - x.mean(0, keepdim=True)
        scaled = centred / (centred.pow(2).mean(0, keepdim=True) + 1e-5).sqrt()
        return (module.weight + offset) * scaled  # type: ignore[operator]

    subject.wrap(norm, over_examples)
    return FaultSite((layer,), parameter=_name(subject, layer, role), names_stack=False)
