# SPDX-License-Identifier: Apache-2.0
"""Files that a site adds and drops, and MPS's pipes, seen from inside a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import engines
from tests.contract.bundles import Bundles
from tests.contract.installation import LIBRARIES, Installation, asks, installation
from tests.contract.roots import Roots
from tests.contract.views import questions
from tests.simulated import elf_maker
from tests.simulated.node import make_node

MPS = "/tmp/nvidia-mps"
SITE = "/opt/site/libsite.so.3"
RULES = f"""
add:
- path: {SITE}
  capabilities: [video]
- path: /opt/site/data
drop:
- "*/nvidia-debugdump"
- "{LIBRARIES}/libnvidia-cfg.so.*"
"""
PROBE_SITE = [
    "/probe",
    *questions(
        SITE,
        "/opt/site/data/table",
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-debugdump",
        f"{LIBRARIES}/libnvidia-cfg.so.1",
        f"{LIBRARIES}/libnvidia-cfg.so",
        f"{MPS}/control",
        runs=[["/dlprobe", "libsite.so.3", "libcuda.so.1"]],
    ),
]


@pytest.fixture(scope="module")
def site(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return gpuhook on a node whose site has extra files, and an MPS daemon."""
    place = tmp_path_factory.mktemp("site")
    node = make_node(place / "node", dump_file.load("t4"))
    root = Path(node.driver_root)
    (root / "opt/site/data").mkdir(parents=True)
    (root / "opt/site/data/table").write_text("of the site")
    elf_maker.write(root / SITE[1:], "libsite.so.3")
    (root / MPS[1:]).mkdir(parents=True)
    os.mkfifo(root / f"{MPS[1:]}/control", 0o666)
    (place / "files.d").mkdir()
    (place / "files.d/site.yaml").write_text(RULES)
    return installation(place, node, bindir, "--files-dir", str(place / "files.d"))


def test_site_files_for_their_capabilities(site: Installation, bundle_of: Bundles) -> None:
    """The loader finds an added library; dropped files and their links do not exist."""
    bundle = bundle_of("debian", PROBE_SITE, asks("0", "video,utility"))
    view = site.run(bundle).view
    kinds = {path: entry.kind for path, entry in view.paths.items()}
    assert kinds == {
        SITE: "file",
        "/opt/site/data/table": "file",
        "/usr/bin/nvidia-smi": "file",
        "/usr/bin/nvidia-debugdump": "missing",
        f"{LIBRARIES}/libnvidia-cfg.so.1": "missing",
        f"{LIBRARIES}/libnvidia-cfg.so": "missing",
        f"{MPS}/control": "fifo",
    }
    assert view.paths["/opt/site/data/table"].content == b"of the site"
    assert view.runs[0].found()["libsite.so.3"]["path"] == SITE
    assert "ro" in view.mounts["/opt/site/data"].options
    assert "rw" in view.mounts[MPS].options


def test_site_files_need_their_capability(site: Installation, bundle_of: Bundles) -> None:
    """A container with `utility` only has neither the site's library nor MPS's pipes."""
    bundle = bundle_of("debian", PROBE_SITE, asks("0", "utility"))
    view = site.run(bundle).view
    assert view.paths[SITE].kind == "missing"
    assert view.paths[f"{MPS}/control"].kind == "missing"
    assert view.paths["/opt/site/data/table"].kind == "file"
    assert "error" in view.runs[0].found()["libsite.so.3"]


def test_site_files_by_podmans_cdi(site: Installation, tmp_path: Path, root_of: Roots) -> None:
    """podman applies the spec, and the CDI hook accepts all entries."""
    specs = tmp_path / "cdi"
    specs.mkdir()
    site.generate("--files-dir", str(site.place / "files.d"), output=specs / "nvidia.yaml")
    options = ["--device", "nvidia.com/gpu=0"]
    view = engines.podman(
        tmp_path / "podman", root_of("debian"), PROBE_SITE, options, cdi=specs
    ).view
    assert view.runs[0].found()["libsite.so.3"]["path"] == SITE
    assert view.paths["/usr/bin/nvidia-debugdump"].kind == "missing"
    assert view.paths[f"{MPS}/control"].kind == "fifo"


def test_invalid_site_rules_are_refused(site: Installation, tmp_path: Path) -> None:
    """generate-cdi prints file and line, and does not change the existing spec."""
    (tmp_path / "wrong.yaml").write_text("drop:\n- nvidia-smi\n")
    words = [*site.node.options, "--files-dir", str(tmp_path), "--output-file", str(site.spec)]
    before = site.spec.read_bytes()
    done = site.gpuhook("generate-cdi", *words)
    assert done.rc == 1
    assert f"{tmp_path}/wrong.yaml, line 2: drop.0: " in done.stderr
    assert "GH1244" in done.stderr
    assert site.spec.read_bytes() == before
    done = site.gpuhook("generate-cdi", "--inventory", "t4", "--files-dir", str(tmp_path))
    assert done.rc == 2
    assert "--files-dir cannot be used with --inventory" in done.stderr
