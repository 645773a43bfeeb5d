# SPDX-License-Identifier: Apache-2.0
"""Hostile images: no file on the host is executed, written or read for them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundle, Bundles, bundle
from tests.contract.installation import CONTROL, KIND, LIBRARIES, Installation, asks
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES, Result, run
from tests.contract.views import questions

MARK = b"what only the host may know"
HOST_LOADER = (Path("/etc/ld.so.cache"), Path("/etc/ld.so.conf"), Path("/etc/ld.so.conf.d"))
ROUTES = ["runc", "crun", "podman-runc", "podman-crun"]
BY = pytest.mark.parametrize("route", ROUTES)


@dataclass(frozen=True)
class Canary:
    """A directory on the host, to which hostile images point, and which must not change."""

    path: Path
    before: dict[str, tuple[object, ...]]

    def assert_unchanged(self) -> None:
        """Assert that nothing in the directory was added, removed or changed."""
        assert roots.listing(self.path) == self.before

    def assert_not_copied_to(self, root: Path) -> None:
        """Assert that none of its content is in a root file system."""
        held = roots.listing(root)
        assert [p for p, facts in held.items() if MARK in facts[-1]] == []  # type: ignore[operator]


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    """Return a canary with files of /etc, /usr/lib/x86_64-linux-gnu, /usr/bin and /dev."""
    place = tmp_path / "canary"
    for name in ("ld.so.conf.d", "alternatives", "x86_64-linux-gnu", "nvidia"):
        (place / name).mkdir(parents=True)
    cache = (roots.debian() / "etc/ld.so.cache").read_bytes()
    (place / "ld.so.cache").write_bytes(cache + MARK)
    (place / "ld.so.conf.d/host.conf").write_bytes(b"# " + MARK + b"\n/usr/lib/host\n")
    (place / "ld.so.conf").write_bytes(b"# " + MARK + b"\ninclude /etc/ld.so.conf.d/*.conf\n")
    for name in ("libcuda.so.1", "nvidia-smi", "nvidia0", "shadow"):
        (place / name).write_bytes(MARK)
    return Canary(place, roots.listing(place))


def run_container(
    installation: Installation, route: str, place: Path, root: Path, *args: str
) -> Result:
    """Run a container with a GPU on this root file system, by gpuhook-runtime or podman."""
    if route in ("runc", "crun"):
        made = bundle(place / "hostile", root, args or ["/probe"], asks("0"))
        return installation.run_with_state(made, route)
    return run_by_podman(installation, route, place, root, *args)


def run_by_podman(
    installation: Installation,
    route: str,
    place: Path,
    root: Path,
    *args: str,
    options: Sequence[str] = (),
) -> Result:
    """Run the container by podman with a CDI device and these options."""
    engine = route.partition("-")[2]
    integrations = Integrations(installation, place)
    words = ["--device", f"{KIND}=0", *options]
    return integrations.by_podman(root, args or ["/probe"], words, f"/usr/bin/{engine}", engine)


def with_tmpfs_over_loader_configuration(made: Bundle) -> Bundle:
    """Mount a tmpfs over what the wrapper would write, so that the hook does the work."""
    mount = {"destination": "/etc/ld.so.conf.d", "type": "tmpfs", "source": "tmpfs"}
    made.write({**made.config(), "mounts": [*made.config()["mounts"], mount]})
    return made


def link(root: Path, path: str, target: str) -> None:
    """Replace a path in the image with a link."""
    at = root / path
    if at.is_dir() and not at.is_symlink():
        shutil.rmtree(at)
    at.unlink(missing_ok=True)
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(target)


def loader_file_identities() -> list[object]:
    """Return the identities of the loader's files of this machine."""
    found: list[object] = []
    for path in HOST_LOADER:
        status = path.stat()
        found.append((path, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


@BY
@pytest.mark.parametrize("form", ["absolute", "relative"])
@pytest.mark.parametrize(
    ("path", "leaf"),
    [
        ("usr/lib/x86_64-linux-gnu", ""),
        ("usr/lib", ""),
        ("etc", ""),
        ("etc/ld.so.cache", "ld.so.cache"),
        ("etc/ld.so.conf", "ld.so.conf"),
        ("etc/ld.so.conf.d", "ld.so.conf.d"),
        ("usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.1"),
        ("usr/bin", ""),
        ("usr/bin/nvidia-smi", "nvidia-smi"),
    ],
)
def test_links_to_the_host_are_not_followed(
    path: str,
    leaf: str,
    form: str,
    route: str,
    node8: Installation,
    canary: Canary,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """Links of an image to host paths: neither gpuhook nor its hook reads or writes them."""
    root = root_of("distroless")
    target = str(canary.path / leaf)
    link(root, path, target if form == "absolute" else "../" * 40 + target[1:])
    # In the container this is another path, whose directory runtimes need.
    (root / str(canary.path)[1:]).mkdir(parents=True)
    result = run_container(node8, route, tmp_path, root, "/probe", *questions("/etc/ld.so.cache"))
    canary.assert_unchanged()
    canary.assert_not_copied_to(root)
    view = result.view
    assert view.gpus()[node8.device(0)].allowed
    assert MARK not in view.paths["/etc/ld.so.cache"].content


@pytest.mark.parametrize("path", ["usr/lib", "usr/lib/x86_64-linux-gnu", "etc", "usr/bin"])
def test_dangling_link_becomes_a_directory_of_the_container(
    path: str, node8: Installation, canary: Canary, tmp_path: Path, root_of: Roots
) -> None:
    """A link to a path that only the host has becomes a directory inside the container."""
    root = root_of("distroless")
    link(root, path, str(canary.path))
    view = run_container(node8, "runc", tmp_path, root).view
    canary.assert_unchanged()
    assert view.gpus()[node8.device(0)].allowed
    assert (root / str(canary.path)[1:]).is_dir()


@ENGINES
@pytest.mark.parametrize("path", ["dev", "proc"])
def test_links_at_dev_and_proc_have_the_runtimes_effect(
    path: str, engine: str, node8: Installation, canary: Canary, tmp_path: Path, root_of: Roots
) -> None:
    """If /dev or /proc is a link, the result is that of the runtime without gpuhook."""
    reference = tmp_path / "alone"
    shutil.copytree(canary.path, reference)
    root = root_of("distroless")
    link(root, path, str(reference))
    run(bundle(tmp_path / "plain", root, ["/probe"]), [engine], engine)
    link(root, path, str(canary.path))
    made = bundle(tmp_path / "hostile", root, ["/probe"], asks("0"))
    node8.run_with_state(made, engine)
    assert set(os.listdir(canary.path)) == set(os.listdir(reference))
    canary.assert_not_copied_to(root)


TRAP = """
#include <fcntl.h>
__attribute__((constructor)) static void sprung(void) {{ open("{place}", O_CREAT|O_WRONLY, 0644); }}
"""


@pytest.fixture
def trapped_image(tmp_path: Path, root_of: Roots) -> tuple[Path, list[str], Path]:
    """Return (a root, the env of its image, the file that appears if the host runs its code)."""
    root, sprung = root_of("debian"), tmp_path / "sprung"
    source = tmp_path / "trap.c"
    source.write_text(TRAP.format(place=sprung), encoding="utf-8")
    command = ["gcc", "-shared", "-fPIC", "-o", str(root / "trap.so"), str(source)]
    subprocess.run(command, check=True)
    modules = root / "modules"
    code = f"open({str(sprung)!r}, 'w')\n"
    for name in ("sitecustomize", "usercustomize", "os", "json", "_json", "errno", "ctypes"):
        (modules / name).parent.mkdir(exist_ok=True)
        (modules / f"{name}.py").write_text(code, encoding="utf-8")
    (modules / "gpuhook").mkdir()
    (modules / "gpuhook/__init__.py").write_text(code, encoding="utf-8")
    env = [f"LD_PRELOAD=/proc/self/cwd/trap.so:{root}/trap.so:/trap.so", f"LD_AUDIT={root}/trap.so"]
    env += [f"PYTHONPATH={modules}:/modules", f"PYTHONSTARTUP={modules}/os.py"]
    env += [f"LD_LIBRARY_PATH={root}", f"PATH={root}:/modules:/usr/bin:/bin"]
    return root, env, sprung


def test_trapped_image_runs_code_of_a_hook_without_environment(
    trapped_image: tuple[Path, list[str], Path], bundle_of: Bundles
) -> None:
    """A hook without an explicit environment runs the image's code on the host."""
    root, env, sprung = trapped_image
    hook = {"path": "/bin/true", "args": ["true"]}
    made = bundle_of(root, ["/probe"], env, hooks={"createContainer": [hook]})
    run(made)
    assert sprung.exists()


@BY
@pytest.mark.parametrize("home", [False, True])
def test_code_of_the_images_environment_is_not_run(
    home: bool,
    route: str,
    node8: Installation,
    trapped_image: tuple[Path, list[str], Path],
    tmp_path: Path,
    bundle_of: Bundles,
) -> None:
    """Code that an image's env names does not run on the host, and the container has its GPU."""
    root, env, sprung = trapped_image
    env = [*env, *([f"PYTHONHOME={root}"] if home else [])]
    if route in ("runc", "crun"):
        made = with_tmpfs_over_loader_configuration(bundle_of(root, ["/probe"], [*env, *asks("0")]))
        result = node8.run_with_state(made, route)
        assert "apply" in made.config()["hooks"]["createContainer"][0]["args"]
    else:
        options = [word for entry in env for word in ("--env", entry)]
        result = run_by_podman(node8, route, tmp_path, root, options=options)
    view = result.view
    assert not sprung.exists()
    assert node8.device(0) in view.gpus()
    assert view.values("LD_PRELOAD") == [env[0].partition("=")[2]]


@BY
def test_hook_has_the_specs_environment_only(
    route: str, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The hook has the environment of the spec, without variables of the image and the engine."""
    environment_file, hook = tmp_path / "seen", tmp_path / "gpuhook-hook"
    real = apart.bindir / "gpuhook-hook"
    script = (
        f'#!/bin/sh\ntr "\\0" "\\n" < /proc/self/environ > {environment_file}\nexec {real} "$@"\n'
    )
    hook.write_text(script, encoding="utf-8")
    hook.chmod(0o755)
    apart.generate("--hook-path", str(hook))
    root = root_of("debian")
    if route in ("runc", "crun"):
        made = with_tmpfs_over_loader_configuration(
            bundle(tmp_path / "b", root, ["/probe"], asks("0"))
        )
        assert apart.run_with_state(made, route).rc == 0
    else:
        assert run_container(apart, route, tmp_path, root).rc == 0
    names = {
        line.partition("=")[0] for line in environment_file.read_text(encoding="utf-8").splitlines()
    }
    assert names <= {"PATH", "PWD", "GPUHOOK_HOOK"}


@BY
@pytest.mark.parametrize("target", ["/etc", "/usr/lib", LIBRARIES])
@pytest.mark.parametrize("fs", ["same", "other"])
def test_host_directories_over_driver_paths_are_unchanged(
    fs: str,
    target: str,
    route: str,
    node8: Installation,
    canary: Canary,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """Host directories mounted over paths that gpuhook writes get empty mount points only."""
    root, source = root_of("distroless"), canary.path
    if fs == "other":
        source = Path("/dev/shm", f"gpuhook-test-{os.getpid()}")
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(canary.path, source)
    before = roots.listing(source)
    try:
        if route in ("runc", "crun"):
            made = bundle(tmp_path / "b", root, ["/probe"], asks("0"))
            made.mount(source, target, "rbind", "rw", "rprivate")
            result = node8.run_with_state(made, route)
        else:
            options = ["--volume", f"{source}:{target}"]
            result = run_by_podman(node8, route, tmp_path, root, options=options)
        assert set(result.view.gpus()) >= {*CONTROL, node8.device(0)}
        after = roots.listing(source)
        assert {path: after.get(path) for path in before} == before
        new = {path for path in after if path not in before and not (source / path).is_dir()}
        assert [p for p in new if (source / p).is_symlink() or (source / p).stat().st_size] == []
    finally:
        if fs == "other":
            shutil.rmtree(source)


@pytest.mark.parametrize("path", ["/", "/proc/self/root", "linked", "../" * 40])
def test_root_directory_of_the_host_is_refused(
    path: str, apart: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """A container whose root file system is the host's root directory is refused."""
    (tmp_path / "linked").symlink_to("/")
    whole = str(tmp_path / "linked") if path == "linked" else path
    made = bundle_of(Path(whole), ["/probe"], asks("0"))
    before, loader = made.file.read_bytes(), loader_file_identities()
    result = apart.edit(made)
    assert result.rc == 1
    assert "GH1304" in result.stderr
    assert made.file.read_bytes() == before
    assert loader_file_identities() == loader
    assert apart.entries() == []


def corrupt(path: Path) -> None:
    """Write a cache with wrong counts."""
    data = bytearray((roots.debian() / "etc/ld.so.cache").read_bytes())
    data[20:28] = b"\xff" * 8
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Write half a cache."""
    data = (roots.debian() / "etc/ld.so.cache").read_bytes()
    path.write_bytes(data[: len(data) // 2])


def nonsense(path: Path) -> None:
    """Write a file that is not a cache."""
    path.write_bytes(b"\0nonsense" * 1000)


def oversized(path: Path) -> None:
    """Write a sparse file of a terabyte."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def fifo(path: Path) -> None:
    """Make a pipe without a writer."""
    os.mkfifo(path)


def node(path: Path) -> None:
    """Make a device node."""
    os.mknod(path, 0o020666, os.makedev(1, 5))


@pytest.mark.parametrize("broken", [corrupt, cut, nonsense, oversized, fifo, node])
@pytest.mark.parametrize("route", ["runc", "podman-runc"])
def test_invalid_loader_cache_is_replaced(
    broken: Callable[[Path], None], route: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """An invalid ld.so.cache is replaced, and neither waited for nor read to its end."""
    root = root_of("distroless")
    cache = root / "etc/ld.so.cache"
    broken(cache)
    names = ["libcuda.so.1", "libnvidia-ml.so.1", "libm.so.6"]
    view = run_container(
        node8, route, tmp_path, root, "/probe", *questions(runs=[["/dlprobe", *names]])
    ).view
    assert [n for n, found in view.runs[0].found().items() if "real" not in found] == []
    assert cache.is_file()
    assert cache.stat().st_size < 1 << 20


@pytest.mark.parametrize("kind", ["loop", "deep", "file"])
@pytest.mark.parametrize("route", ["runc", "podman-runc"])
def test_unusable_directory_is_refused_in_time(
    kind: str, route: str, node8: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """With a loop of links, a long chain, or a file as /etc, the container starts or is refused."""
    root = root_of("distroless")
    shutil.rmtree(root / "etc")
    if kind == "loop":
        (root / "etc").symlink_to("loop")
        (root / "loop").symlink_to("etc")
    elif kind == "deep":
        (root / "etc").symlink_to("l0")
        for number in range(60):
            (root / f"l{number}").symlink_to(f"l{number + 1}")
        (root / "l60").mkdir()
    else:
        (root / "etc").write_text("no directory", encoding="utf-8")
    result = run_container(node8, route, tmp_path, root)
    if result.rc == 0:
        assert node8.device(0) in result.view.gpus()
    else:
        assert "etc" in result.stderr + result.log, result
