# SPDX-License-Identifier: Apache-2.0
"""Commands in a chroot without /proc or without /dev: one error that names the missing mount."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuhook.host import system_mounts
from tests.contract.runtimes import Result, run_command

ROOT = Path(__file__).parents[2]
SCRIPT = """
root=$1 missing=$2; shift 2
mount --rbind / "$root"
for place in /proc /dev; do
    case $missing in
    *$place*) umount -l "$root$place"; mount -t tmpfs none "$root$place" ;;
    esac
done
exec chroot "$root" "$@"
"""
COMMANDS = [
    "doctor",
    "doctor -o json",
    "doctor --root /",
    "ps",
    "map",
    "explain --env NVIDIA_VISIBLE_DEVICES=0",
    "generate-cdi",
    "inventory",
    "labels",
    "limits show",
    "refresh",
    "support-bundle --dry-run",
]
OF_PROCESSES = ["inspect x", "compare x", "attach x --device 0", "repair x"]


def bare(tmp_path: Path, missing: str, words: str) -> Result:
    """Run gpuhook in a chroot of this machine without the mounts `missing`."""
    root = tmp_path / "root"
    root.mkdir()
    python = f"PYTHONPATH={ROOT}", sys.executable, "-m", "gpuhook"
    inside = ["sh", "-c", SCRIPT, "sh", str(root), missing, "env", *python, *words.split()]
    return run_command(["unshare", "--mount", "--propagation", "private", *inside])


@pytest.mark.parametrize(
    ("missing", "words"),
    [(missing, words) for missing in ("/proc", "/dev") for words in COMMANDS]
    + [("/proc", words) for words in OF_PROCESSES]
    + [("/proc /dev", "doctor")],
)
def test_one_error_names_the_mount(tmp_path: Path, missing: str, words: str) -> None:
    """The status is 1, and the error is all that is printed."""
    done = bare(tmp_path, missing, words)
    first, second, *rest = done.stderr.splitlines()
    assert (done.rc, done.stdout, rest) == (1, "", [])
    places = missing.replace(" ", " and ")
    assert first.startswith(
        f"Error GH1594: {places} {'are' if ' ' in missing else 'is'} not mounted"
    )
    assert all(f" {place}" in second for place in missing.split())


@pytest.mark.parametrize(
    "words",
    ["map --inventory t4 --ascii", "explain GH1594", "version", "generate-cdi --inventory t4"],
)
def test_what_reads_no_machine_needs_no_mounts(tmp_path: Path, words: str) -> None:
    done = bare(tmp_path, "/proc /dev", words)
    assert (done.rc, done.stderr) == (0, "")


def test_this_machine_has_both() -> None:
    assert system_mounts.trouble() is None
