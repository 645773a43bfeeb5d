# SPDX-License-Identifier: Apache-2.0
"""The tarball: the command line runs from any directory, and needs only a kernel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpuhook import __version__
from tests.contract import minimal_roots, package_builds, roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.bundles import bundle
from tests.contract.minimal_roots import SUITES, minimal_node
from tests.contract.runtimes import Result, run_command
from tests.contract.test_packages import OTHER_ENVIRONMENT
from tests.simulated.node import make_node

pytestmark = pytest.mark.contract

CHROOT = "/usr/sbin/chroot"
NODE = "/sim"  # where the simulated node is in a root
# As a node's root: runc needs a mount, and the kernel's file systems.
AS_HOST = (
    'mount --bind "$0" "$0"; for d in dev proc sys; do mount --rbind /$d "$0/$d"; done;'
    ' exec /usr/sbin/chroot "$0" "$@"'
)
READ_ONLY = 'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; exec "$0/gpuhook" "$@"'
# Programs of the other machine run by qemu, without a registration that the whole machine has.
_MAGIC = r"\x7fELF\x02\x01\x01" + 9 * r"\x00" + r"\x02\x00\xb7\x00"
_MASK = 7 * r"\xff" + r"\x00" + 8 * r"\xff" + r"\xfe\xff\xff\xff"
BY_QEMU = f"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s ':qemu:M::{_MAGIC}:{_MASK}:/usr/bin/qemu-aarch64-static:F' \\
    >/proc/sys/fs/binfmt_misc/register
exec "$@"
"""


def unpack(tarball: Path, target: Path) -> Path:
    """Unpack a tarball into the new directory `target`, and return the directory in it."""
    target.mkdir(parents=True)
    with tarfile.open(tarball) as archive:
        archive.extractall(target, filter="tar")
    (found,) = target.iterdir()
    return found


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked tarball, in a directory with a space."""
    return unpack(package_builds.tarball(), tmp_path_factory.mktemp("tarball") / "with space")


def linked(unpacked: Path, place: Path) -> Path:
    """Return a copy of the unpacked tarball at the new path `place`, of hard links."""
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-al", str(unpacked), str(place)], check=True)
    return place


def called(unpacked: Path, *words: str, at: Path | None = None) -> Result:
    return run_command([str(at or unpacked / "gpuhook"), *words], {"PATH": "/nowhere"})


def test_it_runs_from_its_directory(unpacked: Path, tmp_path: Path) -> None:
    """By its path, by a link, and without a variable of the caller."""
    link = tmp_path / "link"
    link.symlink_to(unpacked / "gpuhook")
    for program in (unpacked / "gpuhook", link):
        found = json.loads(called(unpacked, "version", "-o", "json", at=program).stdout)
        assert found["package"] == str(unpacked / "lib/gpuhook/gpuhook")
        assert found["interpreter"] == str(unpacked / "python/bin/python3")


def test_it_is_the_plugin_of_kubectl(unpacked: Path, tmp_path: Path) -> None:
    """By its own name, and by a link of that name in a directory of the PATH."""
    link = tmp_path / "kubectl-gpuhook"
    link.symlink_to(unpacked / "kubectl-gpuhook")
    for program in (unpacked / "kubectl-gpuhook", link):
        done = called(unpacked, "--version", at=program)
        assert done.stdout == f"kubectl-gpuhook, version {__version__}\n"
    assert "Usage: kubectl-gpuhook ps" in called(unpacked, "ps", "--help", at=link).stdout


def test_a_path_is_never_truncated(unpacked: Path, tmp_path: Path) -> None:
    """A directory whose files have paths longer than the kernel's limit is an error."""
    program = tmp_path
    while len(str(program)) < 4096 - 100:
        program /= "d" * min(200, 4096 - 16 - len(str(program)))
    # Too long for one call: by steps.
    here = os.open(tmp_path, os.O_PATH)
    for part in program.relative_to(tmp_path).parts:
        os.mkdir(part, dir_fd=here)
        below = os.open(part, os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    shutil.copy(unpacked / "gpuhook", f"/proc/self/fd/{here}/gpuhook")
    os.close(here)
    done = called(unpacked, "version", at=program / "gpuhook")
    assert done.rc == 1
    assert "name too long" in done.stderr


def test_commands(unpacked: Path) -> None:
    """Those that need packages, data files, a child process, and the plugin's libraries."""
    assert "Tesla T4" in called(unpacked, "map", "--inventory", "t4").stdout
    spec = json.loads(called(unpacked, "generate-cdi", "--inventory", "t4", "-o", "json").stdout)
    assert spec["kind"] == "nvidia.com/gpu"
    assert "not applicable" in called(unpacked, "doctor", "--checks", "driver").stderr
    printed = called(unpacked, "device-plugin", "--print-config")
    assert printed.stdout.startswith("version: v1"), printed
    assert called(unpacked, "no-such-command").rc == 2


def test_host_needs_no_c_library(unpacked: Path, tmp_path: Path) -> None:
    """The root file system has the tarball alone: no shell, no loader, no /proc."""
    linked(unpacked, tmp_path / "root/place")
    done = run_command([CHROOT, str(tmp_path / "root"), "/place/gpuhook", "version"])
    assert done.stdout.startswith("gpuhook "), done
    assert "/place/python/bin/python3" in done.stdout


def test_root_with_a_static_busybox(unpacked: Path, tmp_path: Path) -> None:
    """Its shell unpacks the tarball and starts the program."""
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    shutil.copy(package_builds.tarball(), root / "gpuhook.tar.gz")
    script = "/bin/busybox tar -xzf /gpuhook.tar.gz && exec /gpuhook-*/gpuhook version"
    done = run_command([CHROOT, str(root), "/bin/busybox", "sh", "-c", script])
    assert done.stdout.startswith(f"gpuhook {__version__}\n"), done


def test_read_only_mount(unpacked: Path) -> None:
    """Nothing is written to the directory."""
    command = ["unshare", "--mount", "sh", "-ec", READ_ONLY, str(unpacked)]
    for words in (["version"], ["map", "--inventory", "t4"]):
        done = run_command([*command, *words])
        assert (done.rc, done.stderr) == (0, ""), done


@pytest.mark.parametrize("name", ["debian", "musl", "distroless"])
def test_other_c_libraries(name: str, unpacked: Path, tmp_path: Path) -> None:
    """The loader and the libraries of the root file system do not matter."""
    place = roots.copy(name, tmp_path / "root")
    linked(unpacked, place / "gpuhook-tree")
    done = run_command([CHROOT, str(place), "/gpuhook-tree/gpuhook", "version"])
    assert done.stdout.startswith("gpuhook "), done


@pytest.mark.thorough
@pytest.mark.parametrize("suite", SUITES)
def test_debian_releases(suite: str, unpacked: Path, tmp_path: Path) -> None:
    """From libc 2.31 to the newest one, without Python: commands, and a container's GPU."""
    gpus = make_node(tmp_path / "gpus", "t4")
    with minimal_node(suite, tmp_path / "node", tmp_path) as node:
        place = linked(unpacked, tmp_path / "place")
        program = str(place / "gpuhook")
        assert node.run("python3", "--version").rc != 0
        assert node.check(program, "version").startswith(f"gpuhook {__version__}\n")
        assert "Tesla T4" in node.check(program, "map", "--inventory", "t4")
        words = ["node", "install", "--host-root", "/", "--engine", "none"]
        node.check(program, *words)
        minimal_roots.require_gpu_in_container(node, gpus, "/opt/gpuhook/bin", tmp_path / "bundle")
        node.check("/opt/gpuhook/bin/gpuhook", "node", "uninstall", "--host-root", "/")
        assert node.run("test", "-e", "/opt/gpuhook").rc == 1


def test_container_on_a_host_without_python(unpacked: Path, tmp_path: Path) -> None:
    """The root has runc and the tarball: its wrapper gives a container its GPU."""
    root = tmp_path / "root"
    for name in ("etc", "proc", "sys", "dev", "run", "tmp", "opt"):
        (root / name).mkdir(parents=True)
    roots.copy_programs(root, "runc")
    make_node(root / NODE[1:], "t4")
    linked(unpacked, root / "place")
    roots.copy("debian", root / "container/root")
    script = "ls /dev/nvidia0 && /sbin/ldconfig -p | grep -c libcuda.so.1"
    words = ["/bin/sh", "-c", script]
    bundle(root / "container", Path("/container/root"), words, ["NVIDIA_VISIBLE_DEVICES=all"])

    def ran(*words: str) -> Result:
        env = {"PATH": "/usr/bin", "GPUHOOK_HOST_ROOT": NODE}
        command = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", AS_HOST, str(root)]
        done = run_command([*command, *words], env)
        assert done.rc == 0, done
        return done

    ran("/place/gpuhook", "node", "install", "--host-root", "/", "--engine", "none")
    roots_of_node = [f"--{name}-root={NODE}" for name in ("driver", "dev", "host")]
    spec = "--output-file=/etc/cdi/nvidia.yaml"
    ran("/opt/gpuhook/bin/gpuhook", "generate-cdi", *roots_of_node, spec)
    runtime = ["/opt/gpuhook/bin/gpuhook-runtime", "--root", "/run/state", "run"]
    done = ran(*runtime, "--bundle", "/container", f"tarball-{os.getpid()}")
    assert done.stdout.split() == ["/dev/nvidia0", "1"]
    assert ran("/opt/gpuhook/bin/kubectl-gpuhook", "--version").stdout.startswith("kubectl")


def test_documents_are_included(unpacked: Path) -> None:
    """The pages that hints of errors name, manual pages, completions, and all licences."""
    assert (unpacked / "docs/reference/configuration.md").is_file()
    share = unpacked / "share"
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert {"gpuhook.1", "gpuhook-doctor.1", "kubectl-gpuhook.1", "gpuhook-runtime.1"} <= pages
    for path in ("bash-completion/completions/gpuhook", "zsh/site-functions/_gpuhook"):
        assert "_GPUHOOK_COMPLETE" in (share / path).read_text(encoding="utf-8")
    document = json.loads((share / "gpuhook/sbom.spdx.json").read_text(encoding="utf-8"))
    names = {part["name"] for part in document["packages"]}
    licences = {path.name for path in (share / "licenses").iterdir() if list(path.iterdir())}
    assert {"libc6", "busybox-static", "click", "grpcio", "gpuhook"} <= names & licences
    assert {name for name in names if name.startswith("lib")} <= licences
    modes = {os.stat(path).st_mode & 0o777 for path in unpacked.rglob("*") if not path.is_symlink()}
    assert modes <= {0o644, 0o755}


def test_checksum() -> None:
    tarball = package_builds.tarball()
    said = Path(f"{tarball}.sha256").read_text(encoding="utf-8").split()
    assert said == [hashlib.sha256(tarball.read_bytes()).hexdigest(), tarball.name]


@pytest.mark.thorough
def test_builds_are_reproducible(tmp_path: Path) -> None:
    """Another directory, time zone, language, user and umask: the same bytes from the sources."""
    checkout = package_builds.copy_sources(tmp_path / "elsewhere")
    for name in ("docs", "README.md"):
        source = CHECKOUT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, checkout / name)
    env = OTHER_ENVIRONMENT | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    package_builds.make_tarball(CHECKOUT, tmp_path / "one")
    package_builds.make_tarball(checkout, tmp_path / "two", env=env)
    (one,), (two,) = ((tmp_path / name).glob("*.tar.gz") for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.thorough
@pytest.mark.skipif(package_builds.OWN != "x86_64", reason="arm64 is this machine's own")
def test_arm64(tmp_path: Path) -> None:
    """It is built here, and started by qemu: the launcher, Python, and what is compiled."""
    place = unpack(package_builds.tarball("aarch64"), tmp_path / "arm64")
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", BY_QEMU, "sh"]
    program = [*command, str(place / "gpuhook")]
    done = run_command([*program, "version"])
    assert done.stdout.startswith(f"gpuhook {__version__}\n"), done
    assert "architecture: aarch64" in done.stdout
    words = ["explain", "--inventory", "t4", "--env", "NVIDIA_VISIBLE_DEVICES=0"]
    assert "it gets GPU 0 (Tesla T4)" in run_command([*program, *words]).stdout
    amd = ["explain", "--inventory", "mi300x-cpx", "--env", "AMD_VISIBLE_DEVICES=0:1"]
    assert "it gets GPU 0:1 (AMD Instinct MI300X OAM" in run_command([*program, *amd]).stdout
    printed = run_command([*program, "device-plugin", "--print-config"])
    assert printed.stdout.startswith("version: v1"), printed
    libraries = [path for path in place.rglob("*.so*") if path.is_file()]
    heads = {path.read_bytes()[:20] for path in [*libraries, place / "tools/busybox"]}
    assert {int.from_bytes(head[18:20], "little") for head in heads} == {183}  # EM_AARCH64
    assert len(libraries) > 50
