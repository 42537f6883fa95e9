"""Run the example of every rule again and keep what came of it, for the pages of the rules.

python tools/rule_examples.py            all of them
python tools/rule_examples.py R01 W05    these alone; the others stay as they are
python tools/rule_examples.py --anew     look for the plainest model of every example again
"""

from __future__ import annotations

import argparse
import sys
import time

from leadline.reading.diagnosis.examples.example import KEPT, kept_examples, write_examples
from leadline.reading.diagnosis.page import find_rule
from leadline.reading.diagnosis.rule import RULES


def main() -> None:
    """Run them one after the other; name those that failed, with exit code 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rules", nargs="*", metavar="CODE", help="all unless given")
    parser.add_argument("--anew", action="store_true", help="do not begin with the kept models")
    chosen = parser.parse_args()
    from leadline.errors import LeadlineError
    from leadline.testing.faults.examples import run_example

    rules = [find_rule(word) for word in chosen.rules] or [rule for _, rule in RULES.items()]
    examples = dict(kept_examples()) if KEPT.exists() else {}
    known = {rule.code for _, rule in RULES.items()}
    examples = {code: example for code, example in examples.items() if code in known}
    failed: list[str] = []
    for rule in sorted(rules, key=lambda rule: rule.code):
        began = time.perf_counter()
        try:
            example = run_example(rule, None if chosen.anew else examples.get(rule.code))
        except LeadlineError as error:
            failed.append(f"{rule.code}: {error}")
            print(failed[-1], flush=True)
            continue
        examples[rule.code] = example
        write_examples(list(examples.values()))
        shown = "curve" if example.curve else "strips" if example.strips else "bars"
        print(
            f"{rule.code} {rule.name}: {example.host or example.fault}, "
            f"{'first' if example.first else example.explained_by or 'not first'}, {shown}, remedy "
            f"{example.trial.outcome}, {time.perf_counter() - began:.1f} s",
            flush=True,
        )
    sys.exit("\n".join(failed) if failed else 0)


if __name__ == "__main__":
    main()
