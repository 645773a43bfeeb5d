# SPDX-License-Identifier: Apache-2.0
"""Play the demo: `make demo`, or `python -m tests.demo` as root."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.contract.build_cache import CHECKOUT
from tests.demo import act1, act2, act3, act4, act5, demo_node
from tests.demo.page import Page

PLACE = CHECKOUT / "build/demo"
ACTS = {"act1": act1, "act2": act2, "act3": act3, "act4": act4, "act5": act5}


def main() -> int:
    """Play all acts; returns 0 if all expectations were met."""
    if os.geteuid() != 0:
        sys.exit("the demo starts real containers: run it as root")
    began = time.monotonic()
    page = Page()
    page.heading("gpuhook: GPUs for containers")
    page.say("Installing gpuhook below build/demo and reading the node ...")
    installation, is_real = demo_node.demo_installation(PLACE)
    introduce(page, installation.node.node.driver.version or "?", is_real=is_real)
    page.command(f"gpuhook inventory{'' if is_real else ' --inventory t4'}")
    words = [] if is_real else ["--inventory", demo_node.PROFILE]
    page.output(installation.gpuhook("inventory", *words).stdout)
    page.command("gpuhook generate-cdi --output-file .../cdi/nvidia.yaml")
    page.output(
        f"{demo_node.shown(installation.spec)}: {installation.spec.stat().st_size} bytes, CDI 0.5.0"
    )
    with tempfile.TemporaryDirectory(prefix="gpuhook-demo-") as place:
        played = [act.play(page, installation, Path(place) / name) for name, act in ACTS.items()]
    farewell(page, time.monotonic() - began)
    return 0 if all(played) else 1


def introduce(page: Page, version: str, *, is_real: bool) -> None:
    """Print which GPU the demo uses."""
    if is_real:
        page.say(f"This machine has an NVIDIA GPU with driver {version}: the demo uses it.\n")
    else:
        page.say(
            "This machine has no NVIDIA GPU, so the demo simulates a node with one: a g4dn.xlarge"
            f"\nwith a Tesla T4 and driver {version}. Device nodes, ELF files, loader cache,"
            "\nruntimes and engines are real; only the hardware is missing.\n"
        )


def farewell(page: Page, seconds: float) -> None:
    """Print what to try next."""
    page.heading("What to try next")
    page.say(f"The demo took {seconds:.0f} seconds. Its node remains:")
    page.command(f". {demo_node.shown(PLACE / 'env')}")
    page.command("gpuhook inventory                             # the GPUs of this node")
    page.command("gpuhook cdi list                              # the devices of its CDI spec")
    page.command("gpuhook generate-cdi --inventory h100x8       # a CDI spec of another node")
    page.command("gpuhook generate-cdi --inventory t4 --hooks none")
    page.say("\nWith a running container, as root:")
    for command, meaning in demo_node.live_commands(demo_node.keep_bundle(PLACE)):
        page.command(f"{command:<56}  # {meaning}")
    page.say("\nWith a memory limit (needs cgroup v2; a real driver must be 615 or newer):")
    page.command(f"{'gpuhook limits set notebook --limit 4Gi':<56}  # applies at once")
    page.command(f"{'gpuhook limits show':<56}  # the limit that the driver has")
    page.say("\nTo share your own GPU, follow the steps of docs/how-to/share-a-gpu.md.\n")
    page.command("make test        # the test suite")
    page.command("make bench       # the overhead of a container start")


if __name__ == "__main__":
    sys.exit(main())
