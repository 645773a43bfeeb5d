# SPDX-License-Identifier: Apache-2.0
"""Act 5: the container does not see the GPU, on a node that has only NVIDIA's stack."""

from __future__ import annotations

from pathlib import Path

import tests.doctor.parts.gpuhook
from tests.contract.installation import Installation
from tests.demo.act3 import shortened
from tests.demo.page import Page
from tests.doctor import case as cases
from tests.doctor.broken import all_of_them
from tests.doctor.parts import driver

NAMES = ("driver-upgraded-and-not-rebooted", "no-uvm", "drop-in-not-imported")
WHAT_HAPPENED = {
    "driver-upgraded-and-not-rebooted": "An unattended upgrade has replaced the driver's files",
    "no-uvm": "After a reboot, nothing has created /dev/nvidia-uvm",
    "drop-in-not-imported": "An edit of /etc/containerd/config.toml has removed its imports",
}
# A common mistake in pods: half a GPU, requested in a field that has no effect.
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: half}
spec:
  runtimeClassName: nvidia
  containers:
    - name: main
      image: nvidia/cuda:12.4.1-base-ubuntu22.04
      resources:
        requests: {nvidia.com/gpu: 0.5}
"""


def play(page: Page, installation: Installation, place: Path) -> bool:
    """Play the act; returns whether everything that it promises was seen."""
    page.heading("Act 5: the container does not see the GPU")
    page.say(
        "A node with NVIDIA's driver, toolkit, CDI spec and device plugin, and only the command"
        "\n`gpuhook`, which reads the node's files.\n"
    )
    rows = [diagnosed(page, installation, place / name, name) for name in NAMES]
    rows.append(objected(page, installation, place))
    page.command("gpuhook map --inventory a100-mig --width 80")
    drawn = installation.gpuhook("map", "--inventory", "a100-mig", "--width", "80")
    page.output(shortened(drawn.stdout, 14))
    rows.append(("map draws a node from an inventory", "3g.20gb" in drawn.stdout))
    return page.expectations(rows)


def diagnosed(page: Page, installation: Installation, tree: Path, name: str) -> tuple[str, bool]:
    """Break a healthy node in one way, and have doctor name it."""
    tree.mkdir(parents=True)
    healthy = cases.make(tree, without=tests.doctor.parts.gpuhook.__name__)
    driver.write_toolkit_spec(healthy)
    before = installation.gpuhook("doctor", "--root", str(tree))
    broken = next(one for one in all_of_them() if one.name == name)
    broken.do(healthy)
    page.say(f"\n{WHAT_HAPPENED[name]}:")
    page.command("gpuhook --quiet doctor --root NODE")
    found = installation.gpuhook("--quiet", "doctor", "--root", str(tree))
    page.output(shortened(found.stdout, 6))
    named = found.stdout.startswith(f"Root cause: {broken.check}")
    return f"doctor names {broken.check} as the root cause", before.rc == 0 and named


def objected(page: Page, installation: Installation, place: Path) -> tuple[str, bool]:
    """Explain a manifest that the API server would refuse."""
    manifest = place / "pod.yaml"
    manifest.write_text(POD, encoding="utf-8")
    page.command("gpuhook explain pod.yaml --inventory t4")
    told = installation.gpuhook("explain", str(manifest), "--inventory", "t4")
    page.output(shortened(told.stdout, 16))
    return (
        "explain has the API server's error",
        "0.5" in told.stdout and told.rc == 1,
    )
