"""ES modules as one classic script: what comes out, what it does, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from leadline.errors import InputError
from leadline.web import export, pages
from leadline.web.export.joining import join_modules, modules_in_order

MODULES = {
    "app.js": 'import { sum, twice as double } from "./play/sum.js";\n'
    'import { one } from "./one.js";\n'
    "report(double(sum(one, 20)));\n",
    "play/sum.js": 'import { one } from "../one.js";\n'
    "const hidden = one;\n"
    "export function sum(a, b) {\n  return a + b + hidden - one;\n}\n"
    "export const twice = (a) => 2 * a;\n"
    "export class Unused {}\nexport async function later() {}\n",
    "one.js": "report('one');\nconst hidden = 1;\nexport const one = hidden;\n",
    "alone.js": "report('alone');\n",
}


def run(script: str) -> list[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node, which runs the script, is not installed")
    text = f"globalThis.report = (value) => console.log(String(value));\n{script}"
    done = subprocess.run(
        [node, "-e", text], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_modules_come_after_those_that_they_import():
    assert modules_in_order(MODULES, "app.js") == ["one.js", "play/sum.js", "app.js"]


def test_the_script_does_what_the_modules_do_and_runs_each_once():
    # 2 * (1 + 20 + 1 - 1), and neither `hidden` disturbs the other.
    assert run(join_modules(MODULES, "app.js")) == ["one", "42"]


def test_the_script_is_a_classic_one():
    script = join_modules(MODULES, "app.js")
    assert not any(line.startswith(("import", "export")) for line in script.splitlines())
    assert "alone" not in script


@pytest.mark.parametrize(
    "line",
    [
        'import one from "./one.js";',
        'import * as all from "./one.js";',
        'import "./one.js";',
        'import { one } from "./one.js"',
        'import { one } from "one";',
        'import { one, } from "./one.js";',
        "import {",
        "export default 1;",
        "export { one };",
        'export * from "./one.js";',
        "export let one = 1;",
        "export const { one } = all;",
        "  export const one = 1;",
        'const later = import("./one.js");',
        "const here = import.meta.url;",
    ],
)
def test_other_forms_are_refused_with_the_line_and_the_module(line: str):
    with pytest.raises(InputError) as refusal:
        join_modules({**MODULES, "app.js": line}, "app.js")
    assert "app.js" in str(refusal.value)
    assert line.strip() in str(refusal.value)


def test_a_word_that_begins_like_a_form_is_none():
    script = join_modules({"a.js": "exported(1);\nimportance = 2;\n// import it\n"}, "a.js")
    assert "exported(1);" in script


def test_circles_and_missing_modules_are_refused():
    circle = {
        "a.js": 'import { b } from "./b.js";\nexport const a = 1;\n',
        "b.js": 'import { a } from "./a.js";\nexport const b = 1;\n',
    }
    with pytest.raises(InputError, match=r"a\.js -> b\.js -> a\.js"):
        join_modules(circle, "a.js")
    with pytest.raises(InputError, match=r"b\.js"):
        join_modules({"a.js": circle["a.js"]}, "a.js")
    with pytest.raises(InputError, match=r"imports b, which b\.js does not export"):
        join_modules({"a.js": circle["a.js"], "b.js": "export const a = 1, b = 2;\n"}, "a.js")


def test_every_module_of_a_static_site_stands_for_one_of_the_server_or_for_its_data():
    own = Path(export.__file__).parent / "pages" / "modules"
    served = Path(pages.__file__).parent / "modules"
    names = {path.relative_to(own).as_posix() for path in own.rglob("*.js")}
    assert {name for name in names if not (served / name).is_file()} == {"grid_data.js"}
