# SPDX-License-Identifier: Apache-2.0
"""The process of a node, of which nothing remains, whether its test process leaves or is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.contract.runtimes import SECONDS
from tests.waiting import eventually

# Waits for the end of its input, as it ends with the test process. Then it ends the node's first
# process, and so its PID namespace, and removes what the machine has of it.
_KEEPER = """
place=$1 cgroup=$2
shift 2
"$@" &
node=$!
exec >/dev/null
read -r _ || :
processes() {
    for process in $(cat /proc/"$1"/task/*/children); do
        echo "$process"
        processes "$process"
    done
}
exec 2>/dev/null
groups=$(for process in $(processes $node); do cut -d: -f3- "/proc/$process/cgroup"; done | sort -u)
kill -KILL $(cat /proc/$node/task/$node/children)
wait $node
for group in $groups; do
    rmdir /sys/fs/cgroup/*"$group" /sys/fs/cgroup"$group"
done
[ -z "$cgroup" ] || find "$cgroup" -depth -type d -exec rmdir {} ";"
rm -rf --one-file-system "$place"
"""


@contextmanager
def node_process(
    command: Sequence[str], env: Mapping[str, str], place: Path, cgroup: Path | None = None
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a command, whose only child is the first process of a PID namespace.

    Yield its process id, and a process with its standard output. In the end, or when this process
    is killed, the namespace ends, and the directory `place` and the cgroups are removed.
    """
    keeper = ["sh", "-c", _KEEPER, "sh", str(place), str(cgroup or ""), *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        keeper, env=env, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        try:
            eventually(lambda: children(process.pid), "the process of the node")
            yield first_process(process.pid), process
        finally:
            process.stdin.close()
            process.wait(SECONDS)


def first_process(pid: int) -> int:
    """Return the only child of a process, as the first of a PID namespace is of `unshare`."""
    (child,) = children(pid)
    return child


def children(pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def has_ended(pid: int) -> bool:
    """Return whether a process that its parent has not waited for has exited."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()[0] == "Z"
