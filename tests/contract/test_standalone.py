# SPDX-License-Identifier: Apache-2.0
"""The packages with their own Python: contents, dependencies, and their life on a system."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook import __version__
from tests.contract import package_builds, roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.debian_host import DebianHost, debian_host
from tests.contract.minimal_roots import (
    MinimalNode,
    minimal_node,
    minimal_root,
    require_gpu_in_container,
)
from tests.contract.runtimes import run_command
from tests.contract.test_packages import rpm_query
from tests.simulated.node import SimulatedNode, make_node

NAME = "gpuhook-standalone"
SPLIT = ("gpuhook-runtime", "gpuhook", "gpuhook-device-plugin")
PROGRAMS = ("gpuhook", "gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart")
LIBRARY = f"usr/lib/gpuhook/{__version__}"
# Every one of the distributions has these: rpm itself, a shell, coreutils, sed.
OF_EACH_DISTRIBUTION = {"/bin/sh", "coreutils", "sed"}
# Those of rpm 4.14, the one of RHEL 8.
OF_OLD_RPM = {"CompressedFileNames", "FileDigests", "PayloadFilesHavePrefix"}
STATE = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/lib/dpkg", "var/log")

# The packages take minutes to build.
pytestmark = pytest.mark.thorough


def package(kind: str, machine: str = package_builds.OWN) -> Path:
    (found,) = package_builds.standalone(machine).glob(f"*.{kind}")
    return found


def paths(kind: str) -> set[str]:
    """Return the paths of the regular files and links of a package."""
    if kind == "rpm":
        return set(rpm_query("--list", str(package("rpm"))).split())
    listed = run_command(["dpkg-deb", "--contents", str(package("deb"))]).stdout
    return {line.split()[5].removeprefix(".") for line in listed.splitlines()}


def test_contents_are_those_of_the_other_packages() -> None:
    """All programs, manual pages, completions, units, rules and manifests, at the same paths."""
    for kind in package_builds.KINDS:
        own = paths(kind)
        for other in SPLIT:
            (path,) = package_builds.built().glob(f"{other}[-_]{__version__}*.{kind}")
            command = ["rpm", "-qpl", str(path)]
            if kind == "deb":
                command = ["sh", "-c", f"dpkg-deb --fsys-tarfile {path} | tar -t | cut -c 2-"]
            for name in run_command(command).stdout.split():
                elsewhere = ("/usr/share/doc/", "/usr/share/licenses/", "/usr/share/lintian/")
                if name.startswith((f"/{LIBRARY}/", *elsewhere)) or name.endswith("/"):
                    continue
                assert name in own, (kind, other, name)
        assert f"/{LIBRARY}/maintain" in own
        assert f"/{LIBRARY}/python/lib/ld.so" in own


def test_it_depends_on_nothing_but_the_base_system() -> None:
    needs = {line.split()[0] for line in rpm_query("-R", str(package("rpm"))).splitlines()}
    of_rpm = {need[7:-1] for need in needs if need.startswith("rpmlib(")}
    assert {need for need in needs if not need.startswith("rpmlib(")} == OF_EACH_DISTRIBUTION
    assert of_rpm <= OF_OLD_RPM
    fields = ["Depends", "Pre-Depends", "Architecture", "Conflicts"]
    command = ["dpkg-deb", "--field", str(package("deb")), *fields]
    assert run_command(command).stdout.splitlines() == [
        "Architecture: amd64",
        f"Conflicts: {', '.join(SPLIT)}",
    ]
    provided = rpm_query("--provides", str(package("rpm")))
    assert all(f"{name} = {__version__}-1\n" in provided for name in SPLIT)


def test_lintian_reports_nothing() -> None:
    """This includes pedantic tags; each override has a reason."""
    command = ["lintian", "--allow-root", "--pedantic", "--info", "--tag-display-limit", "0"]
    command += ["--fail-on", "error,warning,info,pedantic", str(package("deb"))]
    done = run_command(command)
    tags = [line for line in done.stdout.splitlines() if line[:2] in ("E:", "W:", "I:", "P:")]
    assert tags == []
    assert done.rc == 0, done.stderr


@pytest.mark.parametrize("kind", package_builds.KINDS)
def test_bill_of_materials(kind: str) -> None:
    """It names the written package, and what the package contains."""
    path = package(kind)
    document = json.loads(Path(f"{path}.spdx.json").read_text(encoding="utf-8"))
    described, *others = document["packages"]
    assert described["packageFileName"] == path.name
    ids = [one["SPDXID"] for one in document["packages"]]
    assert len(ids) == len(set(ids))
    kinds = {one["relationshipType"]: one for one in document["relationships"]}
    assert kinds["DESCRIBES"]["relatedSpdxElement"] == described["SPDXID"]
    assert {"libc6", "click", "gpuhook"} <= {one["name"] for one in others}
    for one in document["relationships"]:
        assert {one["spdxElementId"], one["relatedSpdxElement"]} <= {"SPDXRef-DOCUMENT", *ids}


@pytest.mark.parametrize("kind", package_builds.KINDS)
def test_arm64(kind: str) -> None:
    """The package has the machine's name in the format, and the tarball's programs."""
    path = package(kind, "aarch64")
    if kind == "rpm":
        assert rpm_query("--qf", "%{ARCH}", str(path)) == "aarch64"
    else:
        command = ["dpkg-deb", "--field", str(path), "Architecture"]
        assert run_command(command).stdout == "arm64\n"


def test_rpm_in_an_empty_root(tmp_path: Path) -> None:
    """Installed with its dependencies missing, it runs; erase removes every file."""
    root = tmp_path / "root"
    (root / "tmp").mkdir(parents=True)
    rpm = ["rpm", "--root", str(root), "--dbpath", "/var/lib/rpm"]
    refused = run_command([*rpm, "--install", "--ignoreos", str(package("rpm"))])
    missing = {line.split()[0] for line in refused.stderr.splitlines() if "is needed by" in line}
    assert missing == OF_EACH_DISTRIBUTION
    add = [*rpm, "--install", "--nodeps", "--noscripts", "--ignoreos", str(package("rpm"))]
    done = run_command(add)
    assert done.rc == 0, done.stderr
    for words in (["gpuhook", "version"], ["gpuhook-hook", "--version"]):
        ran = run_command(["/usr/sbin/chroot", str(root), f"/usr/bin/{words[0]}", *words[1:]])
        assert __version__ in ran.stdout, ran
    verified = run_command([*rpm, "--verify", "--nodeps", "--noscripts", NAME])
    assert (verified.rc, verified.stdout) == (0, "")
    done = run_command([*rpm, "--erase", "--noscripts", NAME])
    assert done.rc == 0, done.stderr
    assert [path for path in root.rglob("*") if "gpuhook" in path.name] == []


def changed(node: MinimalNode, suite: str) -> list[str]:
    """Return the paths that differ from the release, without state of dpkg and the machine.

    A path of the release that is removed is a character device, which the release does not have.
    """
    release = minimal_root(suite)
    found = []
    for path, facts in roots.listing(node.root).items():
        if any(f"{path}/".startswith(f"{one}/") for one in STATE):
            continue
        same = release / path
        is_directory = (node.root / path).is_dir() and same.is_dir()
        if not is_directory and (not same.is_file() or same.read_bytes() != facts[-1]):
            found.append(path)
    return found


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_deb_on_a_system_without_python(suite: str, tmp_path: Path) -> None:
    """Its programs run and give a container its GPU; a purge leaves nothing."""
    with minimal_node(suite, tmp_path / "node", tmp_path) as node:
        _require_life(node, suite, tmp_path)


def _require_life(node: MinimalNode, suite: str, tmp_path: Path) -> None:
    gpus = make_node(tmp_path / "gpus", "t4")
    (tmp_path / "deb").mkdir()
    deb = tmp_path / "deb" / package("deb").name
    deb.write_bytes(package("deb").read_bytes())
    assert node.run("python3", "--version").rc != 0
    node.check("dpkg", "--install", str(deb))
    assert node.check("gpuhook", "version").startswith(f"gpuhook {__version__}\n")
    assert node.check("gpuhook-hook", "--version") == f"gpuhook-hook {__version__}\n"
    assert node.check("kubectl-gpuhook", "--version").startswith("kubectl-gpuhook")
    assert node.check("gpuhook-device-plugin", "--print-config").startswith("version: v1\n")
    env = {"GPUHOOK_HOST_ROOT": gpus.host_root}
    require_gpu_in_container(node, gpus, "/usr/bin", tmp_path / "bundle")
    spec = Path("/proc", str(node.process), "root/run/cdi/nvidia.yaml").read_text(encoding="utf-8")
    assert "path: /usr/bin/gpuhook-hook" in spec
    checks = ["--checks", "specs", "-o", "json", *gpus.options]
    results = json.loads(node.run("gpuhook", "doctor", *checks, env=env).stdout)["results"]
    assert results
    assert [one for one in results if one["status"] == "failed"] == []
    verified = node.run("dpkg", "--verify", NAME)
    assert (verified.rc, verified.stdout) == (0, "")
    purged = node.run("dpkg", "--purge", NAME)
    assert (purged.rc, "not empty" in purged.stderr) == (0, False), purged
    assert changed(node, suite) == []
    for path in ("/run/gpuhook", "/run/cdi", "/var/lib/gpuhook"):
        assert node.run("test", "-e", path).rc == 1, path


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[DebianHost, SimulatedNode]]:
    """Yield a Debian with Python, and a simulated node that it sees."""
    gpus = make_node(tmp_path / "gpus", "t4")
    with debian_host(tmp_path, tmp_path / "gpus", {"GPUHOOK_HOST_ROOT": gpus.host_root}) as debian:
        yield debian, gpus


def test_it_replaces_the_other_packages_and_back(host: tuple[DebianHost, SimulatedNode]) -> None:
    """Settings and state remain, also when the replaced packages are purged."""
    debian, gpus = host
    built = [path for path in package_builds.built().glob("*.deb") if "compat" not in path.name]
    (compat,) = package_builds.built().glob("*compat*.deb")
    assert debian.dpkg("--install", *built).rc == 0
    settings = debian.root / "etc/gpuhook/config.yaml"
    settings.write_text("runtime:\n  lowLevelRuntimes: [runc]\n")
    spec = ["--output-file", "/var/run/cdi/nvidia.yaml"]
    assert debian.run("gpuhook", "generate-cdi", *gpus.options, *spec).rc == 0
    record = debian.root / "var/lib/gpuhook/somewhere"
    record.mkdir(parents=True)

    def is_whole(interpreter: str) -> None:
        found = json.loads(debian.run("gpuhook", "version", "-o", "json").stdout)
        assert found["interpreter"] == interpreter
        assert settings.read_text().startswith("runtime:")
        assert record.is_dir()
        for path in ("/run/gpuhook", "/run/cdi/nvidia.yaml"):
            assert debian.run("test", "-e", path).rc == 0, path
        wanted = debian.root / "etc/systemd/system/multi-user.target.wants"
        assert (wanted / "gpuhook-refresh.service").is_symlink()

    keep = "--force-confold"
    done = debian.dpkg("--install", keep, "--auto-deconfigure", package("deb"))
    assert done.rc == 0, done.stderr
    is_whole(f"/{LIBRARY}/python/bin/python3")
    assert debian.dpkg("--purge", *reversed(SPLIT)).rc == 0
    is_whole(f"/{LIBRARY}/python/bin/python3")
    assert debian.dpkg("--install", compat).rc == 0
    assert "nvidia.com/gpu=0\n" in debian.run("nvidia-ctk", "cdi", "list").stdout
    for name in ("nvidia-container-runtime", "nvidia-container-runtime-hook"):
        assert __version__ in debian.run(name, "--version").stdout, name
    assert debian.dpkg("--purge", "gpuhook-nvidia-compat").rc == 0
    assert debian.dpkg("--remove", NAME).rc == 0  # as apt does, which finds the conflict
    done = debian.dpkg("--install", keep, *built)
    assert done.rc == 0, done.stderr
    assert debian.dpkg("--purge", NAME).rc == 0
    is_whole("/usr/bin/python3")


def test_rpm_scriptlets(tmp_path: Path) -> None:
    """With a shell in the root, units follow the preset, and the state goes with the package."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", str(minimal_root("bookworm")), root], check=True)
    systemctl = root / "usr/bin/systemctl"
    systemctl.write_text('#!/bin/sh\necho "$@" >>/asked\n')
    systemctl.chmod(0o755)
    # Red Hat's systems do not have it.
    (root / "usr/bin/deb-systemd-helper").unlink(missing_ok=True)
    rpm = ["rpm", "--root", str(root), "--dbpath", "/var/cache/rpm", "--nodeps"]
    done = run_command([*rpm, "--install", str(package("rpm"))])
    assert done.rc == 0, done.stderr
    assert "--no-reload preset gpuhook-refresh.timer" in (root / "asked").read_text()
    states = [root / "run/gpuhook", root / "var/lib/gpuhook"]
    for state in states:
        state.mkdir()
    done = run_command([*rpm, "--erase", NAME])
    assert done.rc == 0, done.stderr
    asked = [line.split() for line in (root / "asked").read_text().splitlines()]
    assert any({"disable", "gpuhook-refresh.path"} <= set(words) for words in asked), asked
    assert not any(path.exists() for path in (*states, root / LIBRARY, root / "etc/gpuhook"))


def test_builds_are_reproducible(tmp_path: Path) -> None:
    """Two builds of one tarball have the same bytes; of the sources: test_tarball."""
    words = [*package_builds.KINDS, "--tarball", str(package_builds.tarball())]
    env = {"TZ": "Asia/Seoul", "LC_ALL": "C", "HOME": "/nonexistent"}
    package_builds.make(CHECKOUT, words, tmp_path / "made", env)
    names = sorted(os.listdir(tmp_path / "made"))
    assert names == sorted(os.listdir(package_builds.standalone()))
    for name in names:
        same = (package_builds.standalone() / name).read_bytes()
        assert (tmp_path / "made" / name).read_bytes() == same, name


def test_a_tarball_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gpuhook").mkdir()
    described = {"version": "0.0.1", "architecture": "x86_64"}
    (tmp_path / "gpuhook/tree.json").write_text(json.dumps(described))
    command = ["tar", "-C", str(tmp_path), "-czf", str(tmp_path / "old.tar.gz"), "gpuhook"]
    subprocess.run(command, check=True)
    words = ["deb", "--tarball", str(tmp_path / "old.tar.gz")]
    with pytest.raises(AssertionError, match=r"has version 0\.0\.1: run make tarball"):
        package_builds.make(CHECKOUT, words, tmp_path / "made")
