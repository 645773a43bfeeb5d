# SPDX-License-Identifier: Apache-2.0
"""Act 5: the container does not see the GPU, on a node where only NVIDIA's stack is configured."""

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
    "driver-upgraded-and-not-rebooted": "an unattended upgrade has replaced the driver's files",
    "no-uvm": "the node was rebooted, and nothing made /dev/nvidia-uvm",
    "drop-in-not-imported": "an administrator tidied up /etc/containerd/config.toml",
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
        "A node with NVIDIA's driver, toolkit, CDI spec and device plugin; of gpuhook there is the"
        "\ncommand and nothing else. It is called at night, with the node's files and no more.\n"
    )
    rows = [diagnosed(page, installation, place / name, name) for name in NAMES]
    rows.append(objected(page, installation, place))
    page.command("gpuhook map --inventory a100-mig --width 80")
    drawn = installation.gpuhook("map", "--inventory", "a100-mig", "--width", "80")
    page.output(shortened(drawn.stdout, 14))
    rows.append(("the map shows a node that one does not have", "3g.20gb" in drawn.stdout))
    return page.promises(rows)


def diagnosed(page: Page, installation: Installation, tree: Path, name: str) -> tuple[str, bool]:
    """Break a healthy node in one way, and have doctor name it."""
    tree.mkdir(parents=True)
    healthy = cases.make(tree, without=tests.doctor.parts.gpuhook.__name__)
    driver.write_toolkit_spec(healthy)
    before = installation.gpuhook("doctor", "--root", str(tree))
    broken = next(one for one in all_of_them() if one.name == name)
    broken.do(healthy)
    page.say(f"\nOne day {WHAT_HAPPENED[name]}:")
    page.command("gpuhook --quiet doctor --root NODE")
    found = installation.gpuhook("--quiet", "doctor", "--root", str(tree))
    page.output(shortened(found.stdout, 6))
    named = found.stdout.startswith(f"Root cause: {broken.check}")
    return f"doctor names {broken.check}, and nothing before", before.rc == 0 and named


def objected(page: Page, installation: Installation, place: Path) -> tuple[str, bool]:
    """Have a manifest explained that the API server would refuse."""
    manifest = place / "pod.yaml"
    manifest.write_text(POD, encoding="utf-8")
    page.command("gpuhook explain pod.yaml --inventory t4")
    told = installation.gpuhook("explain", str(manifest), "--inventory", "t4")
    page.output(shortened(told.stdout, 16))
    return (
        "explain says what the API server will say",
        "0.5" in told.stdout and told.rc == 1,
    )
