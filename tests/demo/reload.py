# SPDX-License-Identifier: Apache-2.0
"""What `systemctl daemon-reload` does to a container's device rules, without a systemd."""

from __future__ import annotations

from pathlib import Path

from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.kernel import cgroup
from tests.contract.device_side import allow, attach_program

# What a runtime allows every container. A GPU is not among what systemd keeps: the runtime names
# it to systemd as /dev/char/195:0, and the driver makes no such link.
ALWAYS = ["c *:* m", "b *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm"]
ALWAYS += ["c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm"]


def daemon_reload(pid: int) -> None:
    """Set the device rules of a process's cgroup again: v1's rules, or a program beside v2's."""
    rules = DeviceRules.parse(Path(f"/proc/{pid}/cgroup").read_bytes())
    if rules.version == "v2":
        attach_program(rules.path, allow(*ALWAYS))
        return
    cgroup.devices_write(rules.path, ["a"], allow=False)
    cgroup.devices_write(rules.path, ALWAYS, allow=True)
