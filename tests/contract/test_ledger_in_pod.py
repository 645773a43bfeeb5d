# SPDX-License-Identifier: Apache-2.0
"""The ledger in the device plugin's pod: the pod mounts the ledger, but no runtime's state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.installation import STATE, Installation, asks
from tests.contract.live import Live, sleeping, wrapped
from tests.contract.runtimes import Result, run_command

READ_ONLY_COMMANDS = [
    ("ps",),
    ("ps", "-o", "wide", "--isolation"),
    ("map",),
    ("limits", "show"),
    ("explain", "NAME"),
    ("inspect", "NAME"),
    ("compare", "NAME"),
    ("compare",),
    ("repair", "--all", "--dry-run"),
    ("inventory",),
    ("doctor",),
    ("health", "show"),
    ("support-bundle", "--no-logs", "--file", "/run/bundle.tar.gz"),
]


@pytest.fixture
def live(node8: Installation, tmp_path: Path) -> Iterator[Live]:
    """Yield a running container that has a GPU from gpuhook-runtime."""
    apart = node8.apart(tmp_path / "node")
    (tmp_path / "container").mkdir()
    made = sleeping(tmp_path / "container", env=asks("2"))
    with wrapped(made, apart, container_id="gpuhook-test-ledger-in-pod") as container:
        yield container


def in_pod(live: Live, *words: str) -> Result:
    """Run gpuhook where /run contains only the ledger and no runtime has a state directory."""
    state, hidden = live.installation.state, live.bundle.path
    script = (
        f"mount -t tmpfs none /run && mkdir {STATE} && mount --bind {state} {STATE}"
        f' && mount -t tmpfs none {hidden} && exec "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "sh"]
    command += ["env", f"GPUHOOK_STATE_DIR={STATE}", str(live.installation.bindir / "gpuhook")]
    command += [live.id if word == "NAME" else word for word in words]
    return run_command(command, live.env)


def ledger_files(live: Live) -> dict[str, bytes]:
    """Return the contents of the ledger's files, by name."""
    return {
        file.name: file.read_bytes() for file in (live.installation.state / "containers").iterdir()
    }


def test_read_only_commands_keep_ledger_entries(live: Live) -> None:
    """No read-only command removes an entry, neither in the pod nor on the host."""
    before = ledger_files(live)
    for words in READ_ONLY_COMMANDS:
        done = in_pod(live, *words)
        assert "Traceback" not in done.stderr, done
        assert ledger_files(live) == before, words
    assert live.container.call("delete", "--force").rc == 0
    for words in (("ps",), ("limits", "show"), ("map",)):
        done = live.installation.gpuhook(*words, *live.roots)
        assert done.rc == 0, done
        assert live.id[:12] not in done.stdout
    assert ledger_files(live) == before
    assert in_pod(live, "repair", "--all").rc == 0
    assert ledger_files(live) == before
    shutil.rmtree(live.bundle.path / "state")
    assert "could not be checked" in live.installation.gpuhook("ps").stderr
    assert live.installation.gpuhook("repair", "--all").rc == 0
    assert ledger_files(live) == {}


def test_ps_in_the_pod_lists_containers(live: Live) -> None:
    """The pod's `ps` lists the container and warns about the state that the pod cannot read."""
    done = in_pod(live, "ps", "-o", "json")
    assert done.rc == 0, done
    (one,) = json.loads(done.stdout)["containers"]
    assert (one["id"], one["gpus"]) == (live.id, [live.installation.gpu(2).uuid])
    state_root = live.bundle.path / "state"
    assert "1 entry could not be checked, the containers may have exited" in done.stderr
    assert f"{state_root} does not exist here" in done.stderr
    on_host = live.installation.gpuhook("ps", *live.roots)
    assert "could not be checked" not in on_host.stderr
