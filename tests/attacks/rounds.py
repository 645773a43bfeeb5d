# SPDX-License-Identifier: Apache-2.0
"""Rounds of commands on one container within one process, which has done its start.

    python -m tests.attacks.rounds PLAN

PLAN is a JSON file with `id`, `roots` (state roots), `device`, `rounds`, `verbs`. The process does
the commands' work without their start and their worker, and prints how each round ended, as JSON:
`ended` {verb: {"done", a code or an error: number}}, `unforeseen` (tracebacks), and `open`, the
number of open descriptors before and after.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuhook.cli.options import container_options
from gpuhook.containers import find
from gpuhook.containers.warm import ledger_changes
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.inspect import gpu_containers, inspection
from gpuhook.live import attach, detach, repair
from gpuhook.node import spec_node
from gpuhook.target import running_container
from gpuhook.target.running_container import Target

_MOST = 20  # tracebacks that are kept


@dataclass(frozen=True)
class Commands:
    """The work of the commands on a container."""

    device: str
    context: PlanContext

    def attach(self, target: Target) -> None:
        chosen = spec_node.known_capabilities(target.spec, self.context)
        attach.attach(target, self.context, [self.device], chosen, is_dry=False)

    def detach(self, target: Target) -> None:
        detach.detach(target, self.context, [self.device], force=True, is_dry=False)

    def repair(self, target: Target) -> None:
        repair.repair(target, self.context, lambda: "", is_dry=False)

    def inspect(self, target: Target) -> None:
        facts = inspection.inspect_container(
            target.held, target.found, target.spec, target.entry, []
        )
        gpu_containers.missing_parts(target, self.context)
        inspection.findings(facts, target.spec)


def main() -> None:
    """Do the rounds of the plan."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    commands = Commands(plan["device"], container_options.context())
    ended: dict[str, Counter[str]] = {verb: Counter() for verb in plan["verbs"]}
    unforeseen: list[str] = []
    descriptors: list[int] = []
    for number in range(plan["rounds"] + 1):
        verb = plan["verbs"][number % len(plan["verbs"])]
        result = _ended(lambda verb=verb: _do(verb, commands, plan), unforeseen)  # type: ignore[misc]
        ended[verb][result] += 1
        if number == 0:  # modules that are imported late are loaded now
            descriptors.append(_open())
    descriptors.append(_open())
    print(json.dumps({"ended": ended, "unforeseen": unforeseen, "open": descriptors}))


def _do(verb: str, commands: Commands, plan: dict[str, Any]) -> None:
    found = find.find(plan["id"], plan["roots"])
    if verb == "inspect":
        with running_container.hold(found) as target:
            commands.inspect(target)
        return
    with (
        ledger_changes.Changing(found.id),
        running_container.hold(found, to_change=True) as target,
    ):
        getattr(commands, verb)(target)


def _ended(work: Callable[[], None], unforeseen: list[str]) -> str:
    try:
        work()
    except GpuhookError as error:
        return error.code
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    except Exception:
        if len(unforeseen) < _MOST:
            unforeseen.append(traceback.format_exc())
        return "unforeseen"
    return "done"


def _open() -> int:
    return len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    main()
