"""S06: modules in a plain list, which no optimizer, device or checkpoint knows."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "S06",
    "parameters-unregistered",
    severity="serious",
    basis="identity",
    needs=("unregistered",),
    summary="Modules or parameters stand in a plain list, tuple or dict of a module.",
    why="`model.parameters()` does not have them: the optimizer never moves them, `.to(device)` leaves "
    "them behind, and `state_dict` does not save them.",
    is_not="A second reference to a module that is registered elsewhere in the model.",
    false_alarms="A helper model that is kept out of the parameters on purpose, such as a frozen teacher.",
    remedy="Use nn.ModuleList, nn.ModuleDict or nn.ParameterList.",
    sources=("https://github.com/maruya24/pytorch_robotics_transformer/issues/3",),
    explains=("gradient-cut", "unlike-its-family", "not-as-intended"),
    example="layers-in-a-plain-list",
)
def parameters_unregistered(case: Case, rule: Rule) -> Iterator[Finding]:
    """One finding for each container."""
    for one in case.fact("unregistered", ()):
        yield rule.finding(
            f"{one['name']} is a plain container of {one['modules']} modules or parameters: the model "
            f"does not know their {one['values']:,} parameters, so they are never trained or saved.",
            parameter=one["name"],
            evidence=[
                Evidence("parameters in plain containers", one["values"], 0, "registered modules")
            ],
            cause="a Python list where nn.ModuleList should stand",
            remedy=f"Write self.{one['name'].rpartition('.')[2]} = nn.ModuleList(...).",
        )
