# SPDX-License-Identifier: Apache-2.0
"""Act 3: a running container loses its GPU and gets it back; attach and detach."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuhook.host.hot import procfs
from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import Container
from tests.demo.page import Page
from tests.demo.reload import daemon_reload

SECONDS = 5
WORKS, DENIED, ABSENT = "opens", "EPERM (Operation not permitted)", "does not exist"
# Opens its node ten times a second, and prints the result when it changes. Without the hardware an
# open that is allowed ends with ENXIO: the node has no driver behind it.
PROGRAM = f"""
while :; do
  if error=$({{ : <"$NODE"; }} 2>&1); then now='{WORKS}'
  else case $error in
    *'No such device or address'*) now='{WORKS}' ;;
    *'not permitted'*) now='{DENIED}' ;;
    *'No such file'*) now='{ABSENT}' ;;
    *) now=$error ;;
  esac; fi
  [ "$now" = "$last" ] || echo "$NODE: $now"
  last=$now
  sleep 0.1
done
"""


def play(page: Page, installation: Installation, place: Path) -> bool:
    """Play the act; returns whether everything that it promises was seen."""
    page.heading("Act 3: a running container")
    page.say(
        "A training job runs. `systemctl daemon-reload` resets the device rules of systemd's units,"
        "\nand the GPU's rules are lost. Users see"
        ' "Failed to initialize NVML: Unknown Error".\n'
    )
    installation = installation.apart(place / "node")  # an empty ledger
    with ExitStack() as stack:
        trainer = stack.enter_context(running(installation, place, "trainer", asks("0")))
        lost = reloaded(page, installation, trainer)
        page.heading("Act 3, second scene: attach and detach a GPU")
        page.say(
            "A notebook runs without a GPU. It gets one and loses it again, without a restart.\n"
        )
        notebook = stack.enter_context(running(installation, place, "notebook", []))
        plugged = attached(page, installation, notebook)
    return lost and plugged


@contextmanager
def running(
    installation: Installation, place: Path, name: str, env: list[str]
) -> Iterator[Container]:
    """Run the program in a container of gpuhook-runtime."""
    made = bundle(
        place / name / "bundle",
        roots.copy("debian", place / name / "root"),
        ["/bin/sh", "-c", PROGRAM],
        [f"NODE={installation.device(0)}", *env],
    )
    with installation.lifecycle(made, container_id=name) as container:
        container.start()
        yield container


def reloaded(page: Page, installation: Installation, trainer: Container) -> bool:
    """Reset the container's device rules as a daemon-reload does, and repair them."""
    rows = [said(page, trainer, WORKS, "the job can open its GPU")]
    before = first_process(trainer)
    page.say("  The device rules are reset, as by `systemctl daemon-reload`.")
    daemon_reload(before[0])
    rows.append(said(page, trainer, DENIED, "after the reload, it cannot"))

    page.command("gpuhook inspect trainer")
    told = installation.gpuhook("inspect", "trainer")
    page.output(paragraphs(told.stdout, "NODE", "GH"))
    rows.append(("inspect names the fault and the fix", "gpuhook repair trainer" in told.stdout))

    page.command("gpuhook repair trainer")
    repaired = installation.gpuhook("repair", "trainer")
    page.output(repaired.stdout + repaired.stderr)
    rows.append(said(page, trainer, WORKS, "after the repair, it can again"))
    rows.append(("its process was not restarted", first_process(trainer) == before))
    after = installation.gpuhook("inspect", "trainer", "-o", "json")
    clean = after.rc == 0 and json.loads(after.stdout)["findings"] == []
    rows.append(("inspect finds no faults", clean))
    return page.expectations(rows)


def attached(page: Page, installation: Installation, notebook: Container) -> bool:
    """Give the container a GPU and take it away again."""
    rows = [said(page, notebook, ABSENT, "the notebook has no GPU")]
    before = first_process(notebook)
    for command, answer, promise in (
        ("attach", WORKS, "after attach, its process can open the GPU"),
        ("detach", ABSENT, "after detach, the GPU is gone"),
    ):
        words = [command, "notebook", "--device", "0", "--state-root"]
        page.command(f"gpuhook {' '.join(words)} .../state")
        done = installation.gpuhook(*words, str(notebook.bundle / "state"))
        page.output(shortened(done.stdout) + done.stderr)
        rows.append(said(page, notebook, answer, promise))
        if command == "attach":
            page.command("gpuhook ps")
            page.output(installation.gpuhook("ps").stdout)
            held = {one["id"] for one in installation.holders()}
            rows.append(("gpuhook ps lists both", held == {"trainer", "notebook"}))
    rows.append(("its process was not restarted", first_process(notebook) == before))
    return page.expectations(rows)


def said(page: Page, container: Container, answer: str, promise: str) -> tuple[str, bool]:
    """Wait until the container's last output is `answer`; show it, and return the row."""
    end = time.monotonic() + SECONDS
    while not (kept := container.output.endswith(f"{answer}\n")) and time.monotonic() < end:
        time.sleep(0.05)
    last = container.output.splitlines()[-1:] or ["nothing"]
    page.say(f"  {container.id} prints: {last[0]}")
    return promise, kept


def first_process(container: Container) -> tuple[int, int | None]:
    """Return the pid and the start time of the container's first process."""
    pid = container.pid
    return pid, procfs.start_time(pid)


def paragraphs(text: str, *beginnings: str) -> str:
    """Return the paragraphs of a text with these beginnings."""
    return "\n\n".join(part for part in text.split("\n\n") if part.startswith(beginnings))


def shortened(text: str, lines: int = 8) -> str:
    """Return the first lines of a text, and the number of the others."""
    rest = text.splitlines()[lines:]
    told = f"  ... and {len(rest)} more\n" if rest else ""
    return "".join(f"{line}\n" for line in text.splitlines()[:lines]) + told
