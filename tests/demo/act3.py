# SPDX-License-Identifier: Apache-2.0
"""Act 3: a running container loses its GPU and gets it back; another one gets one, and gives it."""

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
WORKS, DENIED, ABSENT = "it opens", "EPERM (Operation not permitted)", "there is no such node"
# Opens its node ten times a second, and says so when the answer changes. Without the hardware an
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
        "A training job has run for days. Then somebody calls `systemctl daemon-reload`: systemd"
        " sets\nthe device rules of its units anew, and knows nothing of the GPU. What users see:"
        '\n"Failed to initialize NVML: Unknown Error".\n'
    )
    installation = installation.apart(place / "node")  # a ledger without the act before
    with ExitStack() as stack:
        trainer = stack.enter_context(running(installation, place, "trainer", asks("0")))
        lost = reloaded(page, installation, trainer)
        page.heading("Act 3, second scene: a GPU comes and goes")
        page.say(
            "A notebook was started without a GPU. It gets one, and hands it back, as it runs.\n"
        )
        notebook = stack.enter_context(running(installation, place, "notebook", []))
        plugged = attached(page, installation, notebook)
    return lost and plugged


@contextmanager
def running(
    installation: Installation, place: Path, name: str, env: list[str]
) -> Iterator[Container]:
    """Give a container of our handler that runs the program."""
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
    """Take the GPU from the container as a daemon-reload does, and repair it."""
    rows = [said(page, trainer, WORKS, "the job uses its GPU")]
    before = first_process(trainer)
    page.command("systemctl daemon-reload                      # what it does to the rules")
    daemon_reload(before[0])
    rows.append(said(page, trainer, DENIED, "after the reload an open is refused"))

    page.command("gpuhook inspect trainer")
    told = installation.gpuhook("inspect", "trainer")
    page.output(paragraphs(told.stdout, "NODE", "GH"))
    rows.append(
        ("inspect names the fault and the way out", "gpuhook repair trainer" in told.stdout)
    )

    page.command("gpuhook repair trainer")
    repaired = installation.gpuhook("repair", "trainer")
    page.output(repaired.stdout + repaired.stderr)
    rows.append(said(page, trainer, WORKS, "after the repair the job goes on"))
    rows.append(("it is the same process", first_process(trainer) == before))
    after = installation.gpuhook("inspect", "trainer", "-o", "json")
    clean = after.rc == 0 and json.loads(after.stdout)["findings"] == []
    rows.append(("inspect finds nothing wrong any more", clean))
    return page.promises(rows)


def attached(page: Page, installation: Installation, notebook: Container) -> bool:
    """Give the container a GPU and take it away again."""
    rows = [said(page, notebook, ABSENT, "the notebook has no GPU")]
    before = first_process(notebook)
    for command, answer, promise in (
        ("attach", WORKS, "after attach its process opens the GPU"),
        ("detach", ABSENT, "after detach the GPU is gone"),
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
            rows.append(("gpuhook ps tells both", held == {"trainer", "notebook"}))
    rows.append(("it is the same process", first_process(notebook) == before))
    return page.promises(rows)


def said(page: Page, container: Container, answer: str, promise: str) -> tuple[str, bool]:
    """Wait for the container's program to say `answer` last; show what it said, and if it did."""
    end = time.monotonic() + SECONDS
    while not (kept := container.output.endswith(f"{answer}\n")) and time.monotonic() < end:
        time.sleep(0.05)
    last = container.output.splitlines()[-1:] or ["nothing"]
    page.say(f"  {container.id} says: {last[0]}")
    return promise, kept


def first_process(container: Container) -> tuple[int, int | None]:
    """Return the pid and the start time of the container's first process."""
    pid = container.pid
    return pid, procfs.start_time(pid)


def paragraphs(text: str, *beginnings: str) -> str:
    """Return those paragraphs of a text that begin so."""
    return "\n\n".join(part for part in text.split("\n\n") if part.startswith(beginnings))


def shortened(text: str, lines: int = 8) -> str:
    """Return the first lines of a text, and how many more there are."""
    rest = text.splitlines()[lines:]
    told = f"  ... and {len(rest)} more\n" if rest else ""
    return "".join(f"{line}\n" for line in text.splitlines()[:lines]) + told
