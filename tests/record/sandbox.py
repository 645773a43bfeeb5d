# SPDX-License-Identifier: Apache-2.0
"""The namespaces of the cases: fixed paths, and no GPU of this machine.

/mnt has the node and the case; /run and /sys are empty, /dev has the nodes of every container, and
/proc lists the record's own processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PATH = "/mnt/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Files of GPUs and engines that this machine may have. All other files are read-only.
_EMPTY = """
/mnt /run /sys /etc/cdi /etc/gpuhook /etc/containerd /etc/containers /etc/crio /etc/docker
/etc/kubernetes /etc/nvidia-container-runtime /opt/gpuhook /var/lib/containerd /var/lib/containers
/var/lib/docker /var/lib/gpuhook /var/lib/k0s /var/lib/kubelet /var/lib/rancher /var/snap
"""
_SCRIPT = """
set -eu
installation=$1; shift
exec 3<"$installation"
for place in $EMPTY; do
  [ ! -d "$place" ] || mount -t tmpfs -o mode=755 record "$place"
done
mkdir /mnt/programs
install -m 755 /dev/null /mnt/programs/gpuhook-hook  # the hook of the CDI specs
mount -t overlay -o lowerdir=/mnt/programs:/usr/bin programs /usr/bin
mount -o remount,bind,ro /
mkdir /mnt/prefix /mnt/bin /mnt/tmp /mnt/home /mnt/host
mount --bind /proc/self/fd/3 /mnt/prefix
exec 3<&-
mkdir /mnt/dev
n() { mknod -m 666 /mnt/dev/$1 c $2 $3; }
n null 1 3; n zero 1 5; n full 1 7; n random 1 8; n urandom 1 9; n tty 5 0
mkdir -m 1777 /mnt/dev/shm
ln -s /proc/self/fd /mnt/dev/fd
mount --bind /mnt/dev /dev
hostname record
exec "$@"
"""
_UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net"]
ENVIRONMENT = {
    "HOME": "/mnt/home",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PATH": PATH,
    "TERM": "dumb",
    "TMPDIR": "/mnt/tmp",
    "TZ": "UTC",
}


class Sandbox:
    """The process in the namespaces that runs one case at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, path: str) -> str:
        """Return the transcript of the case GROUP/NAME."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(path, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the process that runs the cases ended at {path}"
        return str(json.loads(answer))


@contextmanager
def sandbox(installation: Path) -> Iterator[Sandbox]:
    """Start the process; it ends with the context."""
    server = [sys.executable, "-m", "tests.record.server"]
    command = [*_UNSHARE, "--mount-proc", "sh", "-c", _SCRIPT, "sh", str(installation), *server]
    env = {**ENVIRONMENT, "PYTHONPATH": str(CHECKOUT), "PYTHONHASHSEED": "0", "EMPTY": _EMPTY}
    for name in ("GPUHOOK_TEST_CACHE",):
        if name in os.environ:
            env[name] = os.environ[name]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=env, cwd=CHECKOUT
    ) as process:
        yield Sandbox(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
