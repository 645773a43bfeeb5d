# SPDX-License-Identifier: Apache-2.0
"""The ledger in the device plugin's pod: it is mounted there, the runtimes' state is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.installation import STATE, Installation, asks
from tests.contract.live import Live, sleeping, wrapped
from tests.contract.runtimes import Result, run_command

READING = [
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
    """Give a running container that has a GPU of gpuhook-runtime."""
    own = node8.apart(tmp_path / "node")
    (tmp_path / "container").mkdir()
    made = sleeping(tmp_path / "container", env=asks("2"))
    with wrapped(made, own, container_id="gpuhook-test-ledger-in-pod") as found:
        yield found


def in_pod(live: Live, *words: str) -> Result:
    """Call gpuhook where /run has nothing but the ledger, and no state root of a runtime exists."""
    state, hidden = live.installation.state, live.bundle.path
    script = (
        f"mount -t tmpfs none /run && mkdir {STATE} && mount --bind {state} {STATE}"
        f' && mount -t tmpfs none {hidden} && exec "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "sh"]
    command += ["env", f"GPUHOOK_STATE_DIR={STATE}", str(live.installation.bindir / "gpuhook")]
    command += [live.id if word == "NAME" else word for word in words]
    return run_command(command, live.env)


def content(live: Live) -> dict[str, bytes]:
    """Return the ledger's files."""
    return {
        file.name: file.read_bytes() for file in (live.installation.state / "containers").iterdir()
    }


def test_reading_commands_change_nothing(live: Live) -> None:
    """No command that only reads removes an entry, in the pod or on the host."""
    before = content(live)
    for words in READING:
        done = in_pod(live, *words)
        assert "Traceback" not in done.stderr, done
        assert content(live) == before, words
    assert live.container.call("delete", "--force").rc == 0
    for words in (("ps",), ("limits", "show"), ("map",)):
        done = live.installation.gpuhook(*words, *live.roots)
        assert done.rc == 0, done
        assert live.id[:12] not in done.stdout
    assert content(live) == before
    assert in_pod(live, "repair", "--all").rc == 0
    assert content(live) == before
    shutil.rmtree(live.bundle.path / "state")
    assert "could not be checked" in live.installation.gpuhook("ps").stderr
    assert live.installation.gpuhook("repair", "--all").rc == 0
    assert content(live) == {}


def test_what_the_pod_lists(live: Live) -> None:
    """The container is listed, and a warning names what the pod cannot see."""
    done = in_pod(live, "ps", "-o", "json")
    assert done.rc == 0, done
    (one,) = json.loads(done.stdout)["containers"]
    assert (one["id"], one["gpus"]) == (live.id, [live.installation.gpu(2).uuid])
    state_root = live.bundle.path / "state"
    assert "1 entry could not be checked, the containers may have ended" in done.stderr
    assert f"{state_root} does not exist here" in done.stderr
    on_host = live.installation.gpuhook("ps", *live.roots)
    assert "could not be checked" not in on_host.stderr
