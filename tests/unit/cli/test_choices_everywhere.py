# SPDX-License-Identifier: Apache-2.0
"""Choices and file rules that apply in every mode of generate-cdi."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.vendors.nvidia.generate.toolkit_switches import (
    COHERENT,
    EXPLICIT_LIBRARIES,
    NO_IPC,
    ONE_CSV_DEVICE,
)
from tests.simulated import elf_maker, extra_nodes, tegra_node, wsl_node
from tests.simulated.node import make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the machine's settings and state."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "no-settings.yaml"))


@pytest.mark.parametrize("mode", ["management", "wsl", "csv"])
def test_every_mode_applies_the_rules_of_the_site(mode: str, tmp_path: Path) -> None:
    """Files that files.d adds or drops, also in modes without NVML."""
    root = tmp_path / "node"
    if mode == "management":
        make_node(root, "t4")
    else:
        {"wsl": wsl_node.make, "csv": tegra_node.make}[mode](root)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/own.json").write_text("{}")
    rules = tmp_path / "files.d"
    rules.mkdir()
    (rules / "site.yaml").write_text(
        "add: [{path: /etc/own.json}, {path: /gone}]\ndrop: ['*cuda*']"
    )
    before, _ = _generated(root, "--mode", mode)
    after, said = _generated(root, "--mode", mode, "--files-dir", str(rules))
    assert any("cuda" in place for place in before)
    assert [place for place in after - before if "cuda" not in place] == ["/etc/own.json"]
    assert not [place for place in after if "cuda" in place]
    assert "/gone does not exist; skipped" in said


def _generated(root: Path, *options: str) -> tuple[set[str], str]:
    """Return the container paths of the mounts in a spec, and standard error."""
    roots = [f"--{name}-root={root}" for name in ("driver", "dev", "host")]
    done = CliRunner().invoke(main, ["generate-cdi", *roots, *options])
    assert done.exit_code == 0, done.stderr
    spec = yaml.safe_load(done.stdout)
    return {mount["containerPath"] for mount in spec["containerEdits"]["mounts"]}, done.stderr


@pytest.mark.usefixtures("installed_hook")
@pytest.mark.parametrize(("make", "node"), [(wsl_node.make, "dxg"), (tegra_node.make, "nvmap")])
def test_choices_apply_on_every_platform(
    make: Callable[[Path], object], node: str, tmp_path: Path
) -> None:
    """Without groups and without hooks, as on other nodes."""
    make(tmp_path)
    place = tmp_path / "dev" / node
    os.chown(place, 0, 44)
    place.chmod(0o660)
    roots = [f"--{name}-root={tmp_path}" for name in ("driver", "dev", "host")]
    flag = ["--feature-flag", "no-additional-gids-for-device-nodes"]
    for options, has_gids, has_hooks in (
        ([], True, True),
        (flag, False, True),
        (["--disable-hook", "all"], True, False),
    ):
        done = CliRunner().invoke(main, ["generate-cdi", *roots, *options])
        assert done.exit_code == 0, done.stderr
        assert ("additionalGids" in done.stdout) == has_gids
        assert ("hooks:" in done.stdout) == has_hooks


@pytest.mark.usefixtures("installed_hook")
def test_management_adds_explicit_libraries(tmp_path: Path) -> None:
    """The flag has the same effect as in other modes; graphics libraries are skipped."""
    made = make_node(tmp_path, "t4")
    where = Path(made.nvml_library).parent
    for stem in ("OpenCL", "GLX"):
        elf_maker.write(where / f"lib{stem}.so.1.0.0", f"lib{stem}.so.1")
    options = ["--mode", "management"]
    plain, _ = _generated(tmp_path, *options)
    flagged, _ = _generated(tmp_path, *options, "--feature-flag", EXPLICIT_LIBRARIES)
    assert {Path(place).name for place in flagged - plain} == {"libOpenCL.so.1.0.0"}


@pytest.mark.parametrize("flag", [EXPLICIT_LIBRARIES, COHERENT, NO_IPC, ONE_CSV_DEVICE])
def test_options_without_effect_have_a_note(flag: str, tmp_path: Path) -> None:
    """A flag, or rules about files, in a mode that adds no such parts."""
    extra_nodes.add(tmp_path)
    rules = tmp_path / "files.d"
    rules.mkdir()
    roots = [f"--{name}-root={tmp_path}" for name in ("driver", "dev", "host")]
    words = ["generate-cdi", *roots, "--mode", "imex", "--feature-flag", flag]
    done = CliRunner().invoke(main, [*words, "--files-dir", str(rules)])
    assert done.exit_code == 0, done.stderr
    assert f"note: {flag} has no effect in mode imex" in done.stderr
    assert "note: --files-dir has no effect in mode imex" in done.stderr
