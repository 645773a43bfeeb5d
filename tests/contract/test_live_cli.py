# SPDX-License-Identifier: Apache-2.0
"""What the commands on running containers print if something is wrong, as text and as documents."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.installation import Installation, asks
from tests.contract.live import Live, sleeping, started, wrapped
from tests.contract.runtimes import run_command


def failure(live: Live, verb: str, *words: str, name: str = "") -> tuple[str, str]:
    """Return the code and the container of the only failure in the document of a command."""
    done = live.gpuhook(verb, *words, "-o", "json", name=name)
    assert done.rc == 1, done
    document = done.document("changes")
    assert (document["schema"], document["containers"]) == (f"gpuhook/{verb}/v1", [])
    (one,) = document["failures"]
    assert f"Error {one['code']}: {one['message']}\nhint: " in done.stderr
    return one["code"], one["container"]


def test_failure_is_in_the_document(node8: Installation, tmp_path: Path) -> None:
    """With `-o json` a failed command prints a document, and its error on standard error."""
    with started(sleeping(tmp_path), node8) as live:
        assert failure(live, "attach", "--device", "17") == ("GH1102", live.id)
        assert failure(live, "detach", "--device", "17") == ("GH1759", live.id)
        for verb, *words in (("attach", "--device", "2"), ("detach", "--device", "2"), ("repair",)):
            assert failure(live, verb, *words, name="no-such") == ("GH1735", "no-such")


def test_hint_for_a_broken_config_json(node8: Installation, tmp_path: Path) -> None:
    """The hint does not suggest `runc spec`, which is for a container that does not run yet."""
    made = sleeping(tmp_path)
    with started(made, node8) as live:
        made.file.write_text("{")
        error = live.refused("GH1772", "inspect")
        assert "runc spec" not in error
        assert str(made.file) in error


@pytest.mark.parametrize("output", ["text", "json"])
def test_repair_all_continues_after_an_unreadable_state(
    output: str, apart: Installation, tmp_path: Path
) -> None:
    """The unreadable state is a failure; the other containers are repaired."""
    made = sleeping(tmp_path, env=asks("2"))
    with wrapped(made, apart) as live:
        Path(f"/proc/{live.pid}/root{apart.device(2)}").unlink()
        broken = made.path / "state/broken"
        broken.mkdir()
        (broken / "state.json").write_text("{")
        done = live.gpuhook("repair", "-o", output, name="--all")
        (broken / "state.json").unlink()
        assert done.rc == 1
        assert "Error GH1739: broken: " in done.stderr
        assert "\nhint: use the pid of one of its processes" in done.stderr
        assert apart.device(2) in live.view().gpus()
        if output == "json":
            document = done.document("changes")
            failures = [one["code"] for one in document["failures"]]
            assert failures == ["GH1739"]
        else:
            assert f"{live.id}: done" in done.stdout


def test_repair_all_continues_without_output(apart: Installation, tmp_path: Path) -> None:
    """Containers are repaired even if standard output cannot be written."""
    with (
        wrapped(sleeping(tmp_path / "a", env=asks("2")), apart) as one,
        wrapped(sleeping(tmp_path / "b", env=asks("2")), apart) as two,
    ):
        for live in (one, two):
            Path(f"/proc/{live.pid}/root{apart.device(2)}").unlink()
        command = [*one.command("repair", name="--all"), *two.roots]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, env=one.env, text=True, check=False
            )
        assert done.returncode == 1
        assert "Error GH1591: standard output: No space left on device" in done.stderr
        for live in (one, two):
            assert apart.device(2) in live.view().gpus()


def test_unusable_state_directory_is_reported(node8: Installation, tmp_path: Path) -> None:
    """The error names the path and GPUHOOK_STATE_DIR; the container does not change."""
    with started(sleeping(tmp_path), node8) as live:
        env = {**live.env, "GPUHOOK_STATE_DIR": "/proc/nope"}
        done = run_command(live.command("attach", "--device", "2"), env)
        assert done.rc == 1
        assert "Error GH1592: /proc/nope" in done.stderr, done
        assert "GPUHOOK_STATE_DIR names it" in done.stderr
        assert not os.path.exists(f"/proc/{live.pid}/root{node8.device(2)}")
