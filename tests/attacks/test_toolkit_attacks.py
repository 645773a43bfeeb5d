# SPDX-License-Identifier: Apache-2.0
"""Known attacks on NVIDIA's container toolkit, with gpuhook in its place.

CVE-2025-23266 (LD_PRELOAD of an image reaches a hook) is in contract/test_hostile.py:
test_code_of_the_images_environment_is_not_run.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.attacks.attacker import LINK, link_to, on_host
from tests.attacks.watched import untouched
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import LIBRARIES, Installation, asks
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES
from tests.contract.test_hostile import Canary, with_tmpfs_over_loader_configuration
from tests.contract.test_loader_view import COMPAT as INSIDE
from tests.contract.test_nvidia_names import foreign, named_bindir
from tests.contract.views import View, questions
from tests.depth import cases, depth

__all__ = ["foreign", "named_bindir"]

COMPAT = f"/{INSIDE}"
ETC = "/etc/ld.so.conf.d"


def hostile_libraries(root: Path, canary: Canary) -> list[str]:
    """Make compatibility libraries of the image that are links to the host; return their paths."""
    targets = {
        "libcuda.so.1": f"{LINK}{canary.path}/libcuda.so.1",
        "libcuda.so.999.1": str(canary.path),
        "libnvidia-ptxjitcompiler.so.1": "/proc/1/root/",
        "libdxcore.so": "/",
    }
    for name, target in targets.items():
        link_to(root / INSIDE / name, target)
    return [f"{COMPAT}/{name}" for name in targets]


def assert_nothing_of_the_host(view: View, canary: Canary) -> None:
    """Assert that the container has no mount of the host's but the driver's files, and its GPU.

    The driver's files have their paths below a driver root; the runtime mounts file systems.
    """
    own = ("/proc", "/sys", "/dev", "/run", ETC)
    others = [mount for mount in view.mounts.values() if not mount.target.startswith(own)]
    merged = {mount: mount.target.replace("/usr/lib/", "/lib/") for mount in others}
    assert [m for m, end in merged.items() if end != "/" and not m.root.endswith(end)] == []
    where = "/".join(canary.path.parts[-2:])  # the test's directories are a file system
    assert [mount for mount in view.mounts.values() if where in mount.root] == []
    assert "/dev/nvidia0" in view.gpus()


@ENGINES
@pytest.mark.parametrize("by", ["wrapper", "hook"])
def test_cve_2024_0132_library_of_the_image_is_a_link_to_the_host(
    by: str, engine: str, node8: Installation, canary: Canary, root_of: Roots, bundle_of: Bundles
) -> None:
    """The toolkit mounted libraries of the image at their paths, and so the host's root by a link.

    gpuhook mounts nothing of the image.
    """
    root = root_of("debian")
    paths = hostile_libraries(root, canary)
    made = bundle_of(root, ["/probe", *questions(*paths, "/etc/ld.so.cache")], asks("0"))
    if by == "hook":
        with_tmpfs_over_loader_configuration(made)
    with untouched(canary):
        view = node8.run_with_state(made, engine).view
    assert_nothing_of_the_host(view, canary)
    assert {view.paths[path].kind for path in paths} == {"link"}
    canary.assert_not_copied_to(root)


@ENGINES
def test_cve_2024_0133_links_at_mount_points_make_no_files(
    engine: str, node8: Installation, canary: Canary, root_of: Roots, bundle_of: Bundles
) -> None:
    """The image has links at the paths of driver files: they were made as empty files on the host.

    The links lead to names that do not exist.
    """
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], asks("0"))
    driver = Path(node8.node.driver_root)
    files = [path for path in driver.rglob("*") if path.is_file() and not path.is_symlink()]
    for number, path in enumerate(files):
        inside = root / path.relative_to(driver)
        if not os.path.lexists(inside):
            link_to(inside, f"{LINK}{canary.path}/made-{number}")
    with untouched(canary):
        node8.run_with_state(made, engine)
    assert sorted(canary.path.glob("made-*")) == []


@ENGINES
@pytest.mark.parametrize("by", cases(["wrapper", "hook"], ["wrapper"]))
@pytest.mark.parametrize("path", ["/etc/gpuhook", "/etc/OpenCL", ETC, "/etc/nvidia", "/etc"])
def test_cve_2024_0134_links_at_directories_make_no_files(
    by: str,
    path: str,
    engine: str,
    node8: Installation,
    canary: Canary,
    root_of: Roots,
    bundle_of: Bundles,
) -> None:
    """The image has a link to the host where gpuhook creates directories and files.

    The wrapper works in a root on the mount of the host's directory: no mount stops it.
    """
    root = root_of("distroless")
    shutil.rmtree(root / path[1:], ignore_errors=True)
    link_to(root / path[1:], f"{LINK}{canary.path}/")
    made = bundle_of(root, ["/probe"], asks("0", "all"))
    if by == "hook":
        with_tmpfs_over_loader_configuration(made)
    with untouched(canary):
        node8.run_with_state(made, engine)
    canary.assert_not_copied_to(root)


WRITES = r"""
for file in $(sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \(\/usr\/[^ ]*\) .*/\1/p' /proc/self/mountinfo); do
  echo evil 2>/dev/null >> "$file" && echo "written $file"
  chmod 0777 "$file" 2>/dev/null && echo "mode of $file"
  mv "$file" "$file.old" 2>/dev/null && echo "moved $file"
  rm -f "$file" 2>/dev/null && echo "removed $file"
done
echo end
"""


@ENGINES
def test_cve_2024_0135_programs_of_the_host_are_read_only(
    engine: str, node8: Installation, bundle_of: Bundles
) -> None:
    """A container could change a program of the host: root in it can change no driver file."""
    made = bundle_of("debian", ["/bin/sh", "-c", WRITES], asks("0", "all"))
    files = [path for path in Path(node8.node.driver_root).rglob("*") if path.is_file()]
    before = {path: path.lstat() for path in files}
    done = node8.run_with_state(made, engine)
    assert done.stdout == "end\n", done
    after = {path: path.lstat() for path in files}
    for path, status in before.items():
        same = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
        now = after[path]
        assert (now.st_mode, now.st_size, now.st_mtime_ns, now.st_ino) == same


def trap_programs(root: Path, sprung: Path) -> None:
    """Replace the image's programs that a hook might call by one that leaves a mark.

    The mark is on the host, or /sprung of the image if that is the program's root directory.
    """
    code = f"#!/bin/dash\nif [ -d {sprung.parent} ]; then : > {sprung}; else : > /sprung; fi\n"
    names = ["ldconfig", "ldconfig.real", "mount", "sh", "nvidia-smi", "nvidia-modprobe", "python3"]
    for name in names:
        for directory in ("usr/sbin", "usr/bin"):
            path = root / directory / name
            path.unlink(missing_ok=True)
            path.write_text(code, encoding="utf-8")
            path.chmod(0o755)
    (root / "usr/bin/libnvidia-container.so").write_text(code, encoding="utf-8")


@ENGINES
@pytest.mark.parametrize("cve", ["2024-0136", "2024-0137"])
def test_cve_2024_0136_and_0137_programs_of_the_image_do_not_run(
    cve: str,
    engine: str,
    apart: Installation,
    tmp_path: Path,
    root_of: Roots,
    bundle_of: Bundles,
) -> None:
    """Code of the image ran with the host's devices (0136), and in its network namespace (0137).

    The image brings each program that a hook could call, in each directory of PATH. The second case
    uses the setting nearest to the toolkit's: the host's ldconfig makes the cache.
    """
    root, sprung = root_of("debian"), tmp_path / "sprung"
    if cve == "2024-0137":
        apart.generate("--ldconfig-path", "/sbin/ldconfig")
    trap_programs(root, sprung)
    env = [f"PATH={root}/usr/bin:/usr/bin", *asks("0", "all")]
    made = with_tmpfs_over_loader_configuration(bundle_of(root, ["/probe"], env))
    view = apart.run_with_state(made, engine).view
    assert not sprung.exists()
    assert not (root / "sprung").exists()
    assert "/dev/nvidia0" in view.gpus()


def links_at_the_cache(root: Path, canary: Canary) -> None:
    """Make the loader's files of an image links to those of the canary."""
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d"):
        path = root / "etc" / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        link_to(path, f"{LINK}{canary.path}/{name}")


@ENGINES
@pytest.mark.parametrize("spec", cases(["own", "nvidia"], ["own"]))
def test_cve_2025_23267_loader_cache_is_a_link(
    spec: str,
    engine: str,
    request: pytest.FixtureRequest,
    apart: Installation,
    canary: Canary,
    root_of: Roots,
    bundle_of: Bundles,
) -> None:
    """The hook update-ldcache followed links of the image, and wrote to the host.

    Both with gpuhook's spec, and with one of NVIDIA's form whose hooks gpuhook takes over.
    """
    installation = request.getfixturevalue("foreign") if spec == "nvidia" else apart
    root = root_of("debian")
    links_at_the_cache(root, canary)
    made: Bundle = bundle_of(root, ["/probe", *questions("/etc/ld.so.cache")], asks("0"))
    with untouched(canary):
        view = installation.run_with_state(made, engine).view
    canary.assert_not_copied_to(root)
    assert b"libcuda.so.1" in view.paths["/etc/ld.so.cache"].content


@pytest.mark.soak
@pytest.mark.timeout(7200)
@ENGINES
@pytest.mark.parametrize("by", ["wrapper", "hook"])
def test_cve_2025_23359_library_of_the_image_becomes_a_link(
    by: str, engine: str, node8: Installation, canary: Canary, root_of: Roots, bundle_of: Bundles
) -> None:
    """The fix of CVE-2024-0132 checked a path that changed before the mount.

    A process that shares the root file system exchanges the libraries and their directory with
    links while containers are created.
    """
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], asks("0"))
    if by == "hook":
        with_tmpfs_over_loader_configuration(made)
    driver = Path(f"{node8.node.driver_root}{LIBRARIES}")
    (root / INSIDE).mkdir(parents=True)
    shutil.copy(next(driver.glob("libcuda.so.*.*")), root / INSIDE / "libcuda.so.1")
    link_to(root / "evil", f"{LINK}{canary.path}")
    link_to(root / "evil.so", f"/proc/1/root{canary.path}/libcuda.so.1")
    swaps = [f"x:{COMPAT}:/evil", f"x:{COMPAT}/libcuda.so.1:/evil.so"]
    with untouched(canary), on_host(root, swaps):
        for _ in range(depth(2, 10, 250)):
            done = node8.run_with_state(made, engine)
            assert done.rc == 0 or "GH" in done.stderr + done.log, done
            if done.rc == 0:
                assert_nothing_of_the_host(done.view, canary)
    canary.assert_not_copied_to(root)
    assert stat.S_ISDIR((root / INSIDE).lstat().st_mode)


def test_programs_of_the_image_would_leave_a_mark(tmp_path: Path, root_of: Roots) -> None:
    """The traps of these tests work."""
    root, sprung = root_of("debian"), tmp_path / "sprung"
    trap_programs(root, sprung)
    subprocess.run([str(root / "usr/sbin/ldconfig")], check=True)
    assert sprung.exists()
    subprocess.run(["chroot", str(root), "/bin/sh"], check=True)
    assert (root / "sprung").exists()
