# SPDX-License-Identifier: Apache-2.0
"""gpuhook as pip installs its wheel: the command, without the programs that engines call."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuhook import __version__
from gpuhook.cdi import spec_file
from tests.contract.build_cache import CHECKOUT
from tests.contract.runtimes import Result, run_command
from tests.simulated.node import SimulatedNode, make_node

SPEC = "/var/run/cdi/nvidia.yaml"
PAGES = "https://github.com/gpuhook/gpuhook/blob"
PICTURES = "https://raw.githubusercontent.com/gpuhook/gpuhook"


class Wheel:
    """A directory into which pip has installed the wheel, and a node."""

    def __init__(self, place: Path, node: SimulatedNode, state: Path) -> None:
        self.bindir, self.node = place / "bin", node
        self.env = {
            **os.environ,
            "PATH": f"{self.bindir}:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(place),
            "GPUHOOK_HOST_ROOT": node.host_root,
            "GPUHOOK_STATE_DIR": str(state),
        }

    def call(self, *words: str) -> Result:
        """Call the installed gpuhook."""
        return run_command([str(self.bindir / "gpuhook"), *words], self.env)

    def generate(self, *words: str) -> Result:
        """Write the node's CDI spec."""
        done = self.call("generate-cdi", *self.node.options, *words, "--output-file", SPEC)
        assert done.rc == 0, done
        return done

    def finding(self) -> dict[str, Any]:
        """Return what doctor finds about the hooks of the spec, which is the host's."""
        command = [str(self.bindir / "gpuhook"), "doctor", "--checks", "specs.hooks", "-o", "json"]
        env = {name: value for name, value in self.env.items() if name != "GPUHOOK_HOST_ROOT"}
        found = json.loads(run_command(command, env).stdout)["results"]
        (one,) = [one for one in found if one["id"] == "specs.hooks"]
        return dict(one)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the installed wheel; its dependencies are those of the tests."""
    built, place = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    words = ["--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", *words, "--wheel-dir", built, CHECKOUT], check=True)
    (wheel,) = built.glob("gpuhook-*.whl")
    subprocess.run([*pip, "install", *words, "--target", place, wheel], check=True)
    return place


@pytest.fixture
def wheel(installed: Path, tmp_path: Path) -> Wheel:
    return Wheel(installed, make_node(tmp_path / "node", "t4"), tmp_path / "state")


def test_long_description_has_absolute_addresses(installed: Path) -> None:
    """PyPI shows README.md without the repository: a link or picture names a file of the tag."""
    (found,) = importlib.metadata.distributions(name="gpuhook", path=[str(installed)])
    shown = (found.read_text("METADATA") or "").partition("\n\n")[2]
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    targets, own = (re.findall(r"\]\(([^)\s]+)\)", text) for text in (shown, readme))
    for target, given in zip(targets, own, strict=True):
        if given.startswith(("https://", "#")):
            assert target == given
            continue
        host = PICTURES if given.endswith(".svg") else PAGES
        assert target == f"{host}/v{__version__}/{given}"
        assert (CHECKOUT / given.partition("#")[0]).is_file()
    assert any(target.startswith(PICTURES) for target in targets)
    assert "<img" not in shown


def test_spec_names_no_missing_hook(wheel: Wheel) -> None:
    """The spec is one of --hooks none, with a note; an option for hooks is refused."""
    assert {path.name for path in wheel.bindir.iterdir()} == {"gpuhook", "kubectl-gpuhook"}
    done = wheel.generate()
    assert (
        "note: this host has no gpuhook-hook, so the spec is written as with --hooks none"
        in done.stderr
    )
    assert "hooks" not in spec_file.read(SPEC)["containerEdits"]
    assert wheel.finding()["status"] == "not-applicable"
    refused = wheel.call("generate-cdi", *wheel.node.options, "--enable-hook", "chmod")
    assert (refused.rc, refused.stdout) == (1, "")
    assert "Error GH1521: --enable-hook needs gpuhook-hook" in refused.stderr


def test_command_of_doctor_fixes_a_missing_hook(wheel: Wheel) -> None:
    """A spec whose hook is missing is written again without it, with its other options."""
    wheel.generate("--hook-path", "/no/gpuhook-hook", "--no-all-device")
    broken = wheel.finding()
    assert broken["status"] == "failed"
    assert broken["subject"] == "/no/gpuhook-hook"
    words = shlex.split(broken["command"])
    assert words[:2] == ["gpuhook", "generate-cdi"]
    assert "--hook-path" not in words
    done = wheel.call(*words[1:])
    assert done.rc == 0, done
    assert wheel.finding()["status"] == "not-applicable"
    names = [one["name"] for one in spec_file.read(SPEC)["devices"]]
    assert "0" in names
    assert "all" not in names


def test_spec_gets_the_hook_that_is_installed_later(wheel: Wheel) -> None:
    """`gpuhook refresh --force` uses it: the missing one is not an option of the spec."""
    wheel.generate()
    hook = wheel.bindir / "gpuhook-hook"
    hook.touch(0o755)
    try:
        done = wheel.call("refresh", "--force")
    finally:
        hook.unlink()
    assert done.rc == 0, done
    assert [one["path"] for one in spec_file.read(SPEC)["containerEdits"]["hooks"]] == [str(hook)]
