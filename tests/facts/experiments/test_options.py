"""An experiment declares its options once: the command line and Python read them from there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from leadline import experiments
from leadline.cli.main import run
from leadline.cli.request.experiment import ExperimentCommand, command_of
from leadline.errors import InputError
from leadline.experiments import EXPERIMENTS, ExperimentOptions, experiment, option
from leadline.experiments.experiment import ExperimentCatalog
from leadline.experiments.outcome.outcome import Outcome


@dataclass(frozen=True)
class HeightOptions(ExperimentOptions):
    """How high is it?

    Measured with a rope.
    """

    redoes = "figure 0"
    quick_text = "A short rope."

    rope: int = option(9, "Metres", quick=3, least=1)
    marks: tuple[int, ...] = option((1, 2), "Where it is marked: {default} unless given.")
    colour: str = option("red", "Of the marks.", group="Rope")
    wet: bool = option(True, "Whether it was in the water.")
    knots: int = option(4, quick=2)

    def run(self, **_given: Any) -> Outcome:
        return Outcome("height", repr(self), "", (), (), {})


def asked(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of the command that is made from the options."""
    app = typer.Typer(rich_markup_mode=None)
    app.command("height", cls=ExperimentCommand)(command_of(HeightOptions))
    app.command("other")(lambda: None)
    done = CliRunner().invoke(app, ["height", *arguments])
    return done.exit_code, done.output if done.exit_code in (0, 2) else repr(done.exception)


def test_the_help_shows_every_declared_option_with_its_default() -> None:
    code, text = asked("--help")
    assert code == 0
    words = " ".join(text.split())
    for sentence in (
        "How high is it? Measured with a rope.",
        "--rope N Metres: 9, or 3 with --quick.",
        "--marks N,N Where it is marked: 1,2 unless given.",
        "--colour NAME Of the marks. [default: red]",
        "--wet / --no-wet Whether it was in the water. [default: wet]",
        "--quick A short rope.",
        "--seed N Seed of everything random. [default: 0]",
    ):
        assert sentence in words
    assert "knots" not in words


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ((), HeightOptions()),
        (("--quick",), HeightOptions(rope=3, knots=2)),
        (("--quick", "--rope", "9"), HeightOptions(rope=9, knots=2)),
        (
            ("--marks", "3,5", "--no-wet", "--seed", "2"),
            HeightOptions(marks=(3, 5), wet=False, seed=2),
        ),
    ],
)
def test_the_command_gives_the_options_that_were_chosen(
    arguments: tuple[str, ...], chosen: HeightOptions
) -> None:
    code, text = asked(*arguments, "--json")
    assert code == 0
    assert repr(chosen) in text


def test_numbers_below_the_least_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        HeightOptions(rope=0).check()
    assert str(caught.value) == "rope is 0; give a whole number from 1 on."
    HeightOptions(rope=1).check()


@pytest.mark.parametrize(
    ("experiment", "wrong", "near"),
    [
        ("rank-collapse", "--dept", "--depth"),
        ("gradient-flow", "--trainingseeds", "--training-seeds"),
        ("depth-limits", "--budgets", "--budget"),
    ],
)
def test_an_option_that_does_not_exist_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], experiment: str, wrong: str, near: str
) -> None:
    with pytest.raises(SystemExit) as left:
        run(["reproduce", experiment, wrong, "3"])
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert said.startswith(f"leadline: The experiment {experiment} has no option {wrong}.")
    assert f" Did you mean {near}? " in said
    assert f"`leadline reproduce {experiment} --help` lists its options." in said


def test_an_experiment_is_one_file_or_one_folder_of_its_name() -> None:
    homes = {name: EXPERIMENTS.get(name).__module__ for name in EXPERIMENTS}
    assert homes == {name: f"leadline.experiments.{name.replace('-', '_')}" for name in EXPERIMENTS}
    folder = Path(experiments.__path__[0])
    rooms = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    machinery = {"__init__", "__pycache__", "experiment", "materials", "outcome"}
    assert {home.rpartition(".")[2] for home in homes.values()} == rooms - machinery


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_the_function_of_an_experiment_stands_beside_its_options(name: str) -> None:
    declared = EXPERIMENTS.get(name)
    assert declared.function().__module__.startswith(declared.__module__)


def test_a_file_beside_the_others_is_all_that_a_new_experiment_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "height.py").write_text(
        "from dataclasses import dataclass\n"
        "from leadline.experiments.experiment import ExperimentOptions\n"
        "from leadline.experiments import experiment\n"
        "@experiment.EXPERIMENTS.register('height')\n"
        "@dataclass(frozen=True)\n"
        "class HeightOptions(ExperimentOptions):\n"
        "    redoes = 'figure 0'\n"
    )
    monkeypatch.setattr(experiment, "EXPERIMENTS", ExperimentCatalog("experiment"))
    monkeypatch.setattr(experiment, "__file__", str(tmp_path / "experiment.py"))
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    assert experiment.EXPERIMENTS.names() == ["height"]


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_every_experiment_names_a_function_and_has_a_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = EXPERIMENTS.get(name)
    assert callable(declared.function())
    assert declared.redoes
    with pytest.raises(SystemExit):
        run(["reproduce", name, "--help"])
    text = capsys.readouterr().out
    for one in fields(declared):
        if spelled := one.metadata.get("text"):
            assert (spelled.name or f"--{one.name.replace('_', '-')}") in text
