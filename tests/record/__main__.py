# SPDX-License-Identifier: Apache-2.0
"""Compare the record with the current behaviour, or record it again."""

from __future__ import annotations

import argparse
import difflib
import os
import sys

from tests.record import cases, surface
from tests.record.case import EXPECTED, Case
from tests.record.sandbox import sandbox
from tests.record.server import FAILED


def main() -> None:
    """Do what the command line requests; exit status 1 for a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.record", description=__doc__)
    parser.add_argument("--update", action="store_true", help="record what happens now")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("names", nargs="*", metavar="GROUP[/NAME]", help="default: all cases")
    options = parser.parse_args()
    chosen = [case for case in cases.every() if _is_named(case, options.names)]
    if options.list:
        print("\n".join(case.path for case in chosen))
        return
    if os.geteuid() != 0:
        sys.exit("the record needs root: it makes namespaces and device nodes")
    changed = failed = 0
    with sandbox(surface.installed()) as runner:
        for case in chosen:
            text = runner.run(case.path)
            recorded = case.expected.read_text("utf-8") if case.expected.exists() else ""
            if text.startswith(FAILED):
                failed += 1
                print(f"{case.path}: {text}")
            elif text != recorded:
                changed += 1
                _report(case, recorded, text, is_update=options.update)
    if options.update and not options.names:
        changed += _remove_others(chosen)
    print(f"{len(chosen)} cases, {changed} changed, {failed} failed", file=sys.stderr)
    sys.exit(int(failed > 0 or (changed > 0 and not options.update)))


def _is_named(case: Case, names: list[str]) -> bool:
    return not names or any(f"{case.path}/".startswith(name.rstrip("/") + "/") for name in names)


def _report(case: Case, recorded: str, text: str, *, is_update: bool) -> None:
    before, after = recorded.splitlines(keepends=True), text.splitlines(keepends=True)
    name = str(case.expected.relative_to(surface.CHECKOUT))
    if not is_update:
        sys.stdout.writelines(difflib.unified_diff(before, after, name, "now"))
        return
    print(name)
    case.expected.parent.mkdir(parents=True, exist_ok=True)
    case.expected.write_text(text, encoding="utf-8")


def _remove_others(chosen: list[Case]) -> int:
    """Remove recorded texts without a case; return their number."""
    known = {case.expected for case in chosen}
    others = [path for path in EXPECTED.rglob("*.txt") if path not in known]
    for path in others:
        path.unlink()
    return len(others)


if __name__ == "__main__":
    main()
