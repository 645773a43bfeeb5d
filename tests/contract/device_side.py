# SPDX-License-Identifier: Apache-2.0
"""Evaluation of expressions about a container's device rules, in its runtime's mount namespace.

    python -m tests.contract.device_side PID EXPRESSION...

evaluates each expression in turn and prints the results as one JSON array. Expressions can use the
container's `rules`; `described`, which lists them; `allow` and `deny`, which make rules from lines
such as "c 195:0 rw"; and `attach_program`, which attaches a second program to a cgroup.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.errors import GpuhookError
from gpuhook.kernel.bpf import bpf_syscall
from gpuhook.kernel.bpf.device_filter import Rule, program
from tests.contract.runtimes import SECONDS, Container, RuntimeEnvironment

CHECKOUT = Path(__file__).parents[2]


def evaluate(container: Container, *expressions: str) -> list[Any]:
    """Return the results of expressions about a created container."""
    pid = container.pid
    return evaluate_for_pid(container.around, pid, *expressions)


def evaluate_for_pid(around: RuntimeEnvironment, pid: int, *expressions: str) -> list[Any]:
    """Return the results of expressions about the process `pid`."""
    if not around.prefix:  # the runtime's mount namespace is our own
        return list(json.loads(_answers(pid, expressions)))
    words = [sys.executable, "-m", "tests.contract.device_side", str(pid), *expressions]
    done = subprocess.run(
        [*around.prefix, *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def allow(*lines: str) -> list[Rule]:
    """Return rules that allow devices."""
    return [Rule.of_line(line) for line in lines]


def deny(*lines: str) -> list[Rule]:
    """Return rules that deny devices."""
    return [Rule.of_line(line, allow=False) for line in lines]


def attach_program(
    cgroup: str, rules: Sequence[Rule] = (), flags: int = bpf_syscall.BPF_F_ALLOW_MULTI
) -> int:
    """Attach a second program to a cgroup, as systemd does at a daemon-reload; return its id."""
    fd = bpf_syscall.prog_load(
        program([*allow("c *:* m", "c 1:3 rwm"), *rules], default=False), "beside"
    )
    place = os.open(cgroup, os.O_RDONLY)
    try:
        bpf_syscall.prog_attach(place, fd, flags)
        return bpf_syscall.prog_info(fd).id
    finally:
        os.close(place)
        os.close(fd)


def described(rules: DeviceRules) -> list[str]:
    """Return the device rules in effect: the lines of v1's list, or a line for each program."""
    if rules.version == "v1":
        return Path(rules.path, "devices.list").read_text(encoding="ascii").splitlines()
    return [
        f"{one}, {one.flags}, {'own' if one.own else 'from above'}:"
        f" {one.ours!r} before {one.rules or one.seen!r}"
        for one in rules.programs()
    ]


def _answer(expression: str, names: dict[str, Any]) -> Any:
    try:
        return eval(expression, names)
    except GpuhookError as error:
        return {"code": error.code, "message": error.message}
    except OSError as error:
        return {"errno": error.errno, "filename": error.filename, "reason": error.strerror}


def _answers(pid: int, expressions: Sequence[str]) -> str:
    cgroup_file = Path(f"/proc/{pid}/cgroup").read_bytes()
    names = {
        "rules": DeviceRules.parse(cgroup_file),
        "allow": allow,
        "deny": deny,
        "attach_program": attach_program,
        "described": described,
    }
    return json.dumps([_answer(word, names) for word in expressions], default=repr)


def main() -> None:
    """Evaluate the expressions of the command line."""
    print(_answers(int(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()
