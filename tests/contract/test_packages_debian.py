# SPDX-License-Identifier: Apache-2.0
"""The Debian packages on a Debian system: install, use, upgrade under load, remove, purge."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuhook import __version__
from tests.contract import engines, package_builds, roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.debian_host import STATE, DebianHost, debian_host
from tests.simulated.node import SimulatedNode, make_node

NEXT = "99.0.0"
# A systemctl that records its calls, and a policy that forbids to start services.
SYSTEMCTL = """
printf '#!/bin/sh\\necho "$@" >>/tmp/asked\\n' >/usr/bin/systemctl
chmod 755 /usr/bin/systemctl
"""
POLICY = """
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
"""
NAMES = ("gpuhook-runtime", "gpuhook", "gpuhook-device-plugin")
REMOVED = (*reversed(NAMES),)
LIBRARY = f"usr/lib/gpuhook/{__version__}"
SPEC = "/var/run/cdi/nvidia.yaml"
CONFIGURE_DEBIAN = {"GPUHOOK_HOST_ROOT": "/"}  # configures this Debian, not the simulated node
# Compares all byte code with what this Python compiles from the sources.
COMPARE_BYTE_CODE = """
import marshal, os, sys
count = 0
for directory, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            path = os.path.join(directory, name)
            made = f"{directory}/__pycache__/{name[:-3]}.{sys.implementation.cache_tag}.pyc"
            with open(path, "rb") as source, open(made, "rb") as code:
                expected = compile(source.read(), path, "exec", dont_inherit=True)
                assert marshal.loads(code.read()[16:]) == expected, path
                count += 1
print(count)
"""


@dataclass(frozen=True)
class Host:
    """A Debian system, a simulated node at the same path in it, and its initial files."""

    debian: DebianHost
    node: SimulatedNode
    fresh: dict[str, tuple[object, ...]]

    def install(self, version: str = "", *, is_busy: bool = False) -> None:
        """Install the packages of this release, or of another one.

        On a busy node a program of the previous release may end meanwhile, and leave byte code in
        its directory: dpkg reports that, and the trigger of the new release removes it.
        """
        packages = sorted(package_builds.built(version).glob("*.deb"))
        done = self.debian.dpkg("--install", *(p for p in packages if "compat" not in p.name))
        assert done.rc == 0, done.stdout + done.stderr
        assert is_busy or "not empty" not in done.stderr, done.stderr

    def listing(self) -> dict[str, tuple[object, ...]]:
        """Return the files of the Debian system, without state."""
        files = roots.listing(self.debian.root)
        own = [*STATE, str(Path(self.node.host_root).parents[-2])[1:]]
        return {
            path: facts
            for path, facts in files.items()
            if not any(f"{path.strip('/')}/".startswith(f"{one}/") for one in own)
        }

    @property
    def library(self) -> Path:
        """Return the directory of this release's modules."""
        return self.debian.root / LIBRARY


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    place = tmp_path_factory.mktemp("packages")
    node = make_node(place / "node", "t4")
    env = {"GPUHOOK_HOST_ROOT": node.host_root}
    with debian_host(place, Path(node.host_root), env) as debian:
        yield Host(debian, node, Host(debian, node, {}).listing())


@pytest.fixture
def installed(host: Host) -> Host:
    """Return the Debian system with the packages."""
    status = host.debian.run("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", *NAMES)
    if status.stdout != "ii " * len(NAMES):
        host.install()
    return host


@contextmanager
def containerd(host: Host, config: str = "") -> Iterator[None]:
    """Run containerd of the Debian system, with its own or another configuration file."""
    words = ["--config", config] if config else []
    command = host.debian.command("containerd", *words)
    log = host.debian.root / "tmp/containerd.log"
    with engines.run_daemon(
        command, log, lambda: host.debian.run("ctr", "version").rc == 0, host.debian.variables
    ):
        yield


def generate_spec(host: Host) -> None:
    """Write the node's CDI spec, as an administrator does."""
    done = host.debian.run("gpuhook", "generate-cdi", *host.node.options, "--output-file", SPEC)
    assert done.rc == 0, done.stderr


def run_container(host: Host, runtime: str, name: str) -> str:
    """Run a container that requests GPU 0, and return the listing of its /dev and libraries."""
    root = host.debian.root / "srv" / name
    roots.copy("debian", root)
    script = "ls /dev; ls /usr/lib/x86_64-linux-gnu; echo done"
    words = ["ctr", "run", "--rm", "--rootfs", "--runc-binary", runtime]
    words += ["--env", "NVIDIA_VISIBLE_DEVICES=0", f"/srv/{name}", name, "/bin/sh", "-c", script]
    try:
        done = host.debian.run(*words)
        assert done.rc == 0, done.stderr
        return done.stdout
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def test_installed_programs_run(installed: Host) -> None:
    """They use Debian's Python and Debian's packages of their dependencies."""
    debian = installed.debian
    assert debian.run("gpuhook", "--version").stdout == f"gpuhook, version {__version__}\n"
    assert debian.run("gpuhook-hook", "--version").stdout == f"gpuhook-hook {__version__}\n"
    assert debian.run("gpuhook-prestart", "--version").rc == 0
    shown_config = debian.run("gpuhook-device-plugin", "--print-config")
    assert shown_config.stdout.startswith("version: v1\n"), shown_config.stderr
    labels = debian.run("gpuhook", "labels", "--inventory", "t4")
    assert "nvidia.com/gpu.count" in labels.stdout, labels.stderr
    checked = debian.run("gpuhook", "config", "validate")
    assert checked.rc == 0, checked.stderr
    status = debian.run("dpkg", "--verify", *NAMES)
    assert (status.stdout, status.rc) == ("", 0)


def test_services_are_enabled_by_the_preset(installed: Host) -> None:
    """When the package is configured again, it keeps what the administrator enabled or disabled."""
    wanted = installed.debian.root / "etc/systemd/system"
    on, path, timer = (
        wanted / "multi-user.target.wants/gpuhook-refresh.service",
        wanted / "multi-user.target.wants/gpuhook-refresh.path",
        wanted / "timers.target.wants/gpuhook-refresh.timer",
    )
    assert [one.is_symlink() for one in (on, path, timer)] == [True, True, False]
    unit = path.readlink()
    path.unlink()
    timer.parent.mkdir(exist_ok=True)
    timer.symlink_to("/usr/lib/systemd/system/gpuhook-refresh.timer")
    script = "/var/lib/dpkg/info/gpuhook.postinst"
    of_dpkg = {"DPKG_MAINTSCRIPT_PACKAGE": "gpuhook"}
    done = installed.debian.run(script, "configure", "0.0.1-1", env=of_dpkg)
    assert (done.rc, done.stderr) == (0, "")
    assert [one.is_symlink() for one in (on, path, timer)] == [True, False, True]
    timer.unlink()
    path.symlink_to(unit)


CALLS = {
    "postinst": [
        ("configure", "0.0.1-1"),
        ("abort-upgrade", "99.0.0-1"),
        ("abort-deconfigure", "in-favour", "other", "1", "removing", "one", "2"),
    ],
    "prerm": [
        ("upgrade", "99.0.0-1"),
        ("failed-upgrade", "0.0.1-1", "99.0.0-1"),
        ("deconfigure", "in-favour", "other", "1"),
        ("remove",),
        ("remove", "in-favour", "other", "1"),
    ],
    "postrm": [
        ("failed-upgrade", "0.0.1-1", "99.0.0-1"),
        ("abort-install",),
        ("abort-install", "0.0.1-1", "99.0.0-1"),
        ("abort-upgrade", "0.0.1-1", "99.0.0-1"),
        ("disappear", "other", "1"),
        ("upgrade", "99.0.0-1"),
        ("upgrade", "99.0.0-1"),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_maintainer_scripts_accept_all_calls_of_dpkg(installed: Host, name: str) -> None:
    """The calls are those of Debian Policy 6.5, also after an interruption."""
    debian = installed.debian
    aside = debian.root / "tmp/modules"
    modules = installed.library / f"{name}.modules"
    env = {"DPKG_MAINTSCRIPT_PACKAGE": name}
    for script, calls in CALLS.items():
        path = f"/var/lib/dpkg/info/{name}.{script}"
        if not (debian.root / path[1:]).exists():
            continue
        for words in calls:
            done = debian.run(path, *words, env=env)
            assert done.rc == 0, (script, words, done.stderr)
    modules.rename(aside)
    for script, words in (("postrm", ("upgrade", "99.0.0-1")), ("prerm", ("remove",))):
        done = debian.run(f"/var/lib/dpkg/info/{name}.{script}", *words, env=env)
        assert (done.rc, "No such file" in done.stderr) == (0, False), done.stderr
    aside.rename(modules)
    for again in ("gpuhook-runtime", name):
        script = f"/var/lib/dpkg/info/{again}.postinst"
        if (debian.root / script[1:]).exists():
            own = {"DPKG_MAINTSCRIPT_PACKAGE": again}
            assert debian.run(script, "abort-remove", env=own).rc == 0
    assert (installed.library / "gpuhook.entry.runtime.bundle").exists()
    assert debian.run("dpkg", "--verify", *NAMES).rc == 0


def test_policy_rc_d_prevents_service_restarts(installed: Host) -> None:
    """Maintainer scripts ask policy-rc.d before they start a service (Debian Policy 9.3.3.2)."""
    debian = installed.debian
    booted, calls = debian.root / "run/systemd/system", debian.root / "tmp/asked"
    script = f"{SYSTEMCTL}mkdir -p /run/systemd/system; exec /{LIBRARY}/maintain units-new a.path"
    assert debian.run("sh", "-c", script).rc == 0
    called = calls.read_text().splitlines()
    assert called == ["daemon-reload", "--quiet is-enabled a.path", "--no-block restart a.path"]
    calls.unlink()
    done = debian.run("sh", "-c", f"{POLICY}{script}")
    debian.run("rm", "-r", "/run/systemd", "/usr/sbin/policy-rc.d", "/usr/bin/systemctl")
    assert done.rc == 0, done.stderr
    assert "restart" not in calls.read_text()
    assert not booted.exists()


def test_byte_code_matches_the_sources(installed: Host) -> None:
    """Triggers compile every module for the installed Python; removal deletes the byte code."""
    debian = installed.debian
    script = debian.root / "tmp/compared.py"
    script.write_text(COMPARE_BYTE_CODE)
    done = debian.run("/usr/bin/python3", "-ISB", "/tmp/compared.py", f"/{LIBRARY}")
    assert done.rc == 0, done.stderr
    assert int(done.stdout) == len(list(installed.library.rglob("*.py"))) > 600
    old = installed.library / "gpuhook/host/hot/__pycache__/state.cpython-39.pyc"
    old.write_bytes(b"of another Python")
    made = installed.library / "gpuhook/host/hot/__pycache__/state.cpython-311.pyc"
    made.unlink()
    assert debian.run("dpkg-trigger", "--by-package=python3-minimal", "/usr/bin/python3").rc == 0
    assert debian.run("dpkg", "--triggers-only", "--pending").rc == 0
    assert made.exists()
    assert not old.exists()
    assert debian.dpkg("--remove", "gpuhook-device-plugin").rc == 0
    sources = {path.relative_to(installed.library) for path in installed.library.rglob("*.py")}
    compiled = {
        path.parent.parent.relative_to(installed.library) / f"{path.name.partition('.')[0]}.py"
        for path in installed.library.rglob("*.pyc")
    }
    assert compiled == sources
    missing = debian.run("gpuhook", "device-plugin")
    assert missing.rc == 1
    assert "GH1805" in missing.stderr
    assert "gpuhook-device-plugin" in missing.stderr


def test_container_by_debian_containerd(installed: Host) -> None:
    """The wrapper, the hook and the generator work from their packages."""
    generate_spec(installed)
    with containerd(installed):
        seen = run_container(installed, "/usr/bin/gpuhook-runtime", "gpus").split()
    assert {"nvidia0", "nvidiactl", "libcuda.so.1", "done"} <= set(seen)


@contextmanager
def stopped_docker_container(debian: DebianHost) -> Iterator[None]:
    """Add Docker's files of a stopped container that uses gpuhook-runtime."""
    daemon, state = debian.root / "etc/docker", debian.root / "var/lib/docker"
    place = state / "containers/0123"
    for directory in (daemon, place):
        directory.mkdir(parents=True)
    runtimes = {"runtimes": {"gpuhook-runtime": {"path": "/usr/bin/gpuhook-runtime"}}}
    (daemon / "daemon.json").write_text(json.dumps(runtimes))
    (place / "hostconfig.json").write_text('{"Runtime": "gpuhook-runtime"}')
    (place / "config.v2.json").write_text('{"Name": "/web", "State": {"Running": false}}')
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", str(daemon), str(state)], check=True)


def test_configure_and_undo_of_containerd(installed: Host) -> None:
    """A container runs by the configured runtime; removal warns; undo restores the file."""
    debian = installed.debian
    before = (debian.root / "etc/containerd/config.toml").read_bytes()
    generate_spec(installed)
    done = debian.run("gpuhook", "configure", "containerd", env=CONFIGURE_DEBIAN)
    assert done.rc == 0, done.stderr
    dumped = debian.run("containerd", "config", "dump").stdout
    names = [line.split('"')[1] for line in dumped.splitlines() if "BinaryName" in line]
    (runtime,) = {name for name in names if "gpuhook" in name}
    with containerd(installed):
        assert "nvidia0" in run_container(installed, runtime, "configured").split()
    with stopped_docker_container(debian):
        warned = debian.run(
            "dpkg", "--remove", "gpuhook-device-plugin", "gpuhook", env=CONFIGURE_DEBIAN
        )
    assert "gpuhook configure undo containerd" in warned.stderr
    assert "docker  0123  web   no    its runtime is gpuhook-runtime\n" in warned.stderr
    installed.install()
    done = debian.run("gpuhook", "configure", "undo", "containerd", env=CONFIGURE_DEBIAN)
    assert done.rc == 0, done.stderr
    assert (debian.root / "etc/containerd/config.toml").read_bytes() == before


@pytest.mark.thorough
def test_upgrade_and_downgrade_disturb_no_container(installed: Host) -> None:
    """Meanwhile each container starts with its GPU, and running ones keep theirs.

    The engine remains configured: each release recognizes the configuration, and can undo it.
    """
    debian = installed.debian
    running = f"running-{os.getpid()}"  # its cgroup is in the machine's tree
    generate_spec(installed)
    engine = debian.root / "etc/containerd/config.toml"
    before = engine.read_bytes()
    assert debian.run("gpuhook", "configure", "containerd", env=CONFIGURE_DEBIAN).rc == 0
    written = engine.stat()
    bundle = debian.root / "srv/bundle"
    (bundle / "root").mkdir(parents=True)
    config = {
        "ociVersion": "1.0.2",
        "process": {"args": ["true"], "cwd": "/", "env": ["NVIDIA_VISIBLE_DEVICES=0"]},
        "root": {"path": "/srv/bundle/root"},
        "linux": {},
    }
    failures: list[str] = []
    starts: list[str] = []
    over = threading.Event()

    def start() -> None:
        while not over.is_set():
            (bundle / "config.json").write_text(json.dumps(config))
            env = {"GPUHOOK_LOW_LEVEL_RUNTIME": "/bin/true"}
            words = ("gpuhook-runtime", "create", "--bundle", "/srv/bundle", f"id{len(starts)}")
            done = debian.run(*words, env=env)
            starts.append(done.stderr)
            if done.rc or "nvidia0" not in (bundle / "config.json").read_text():
                failures.append(done.stderr)

    root = debian.root / "srv/running"
    roots.copy("debian", root)
    thread = threading.Thread(target=start)
    with containerd(installed):
        words = ["ctr", "run", "--detach", "--rootfs", "--runc-binary", "/usr/bin/gpuhook-runtime"]
        words += ["--env", "NVIDIA_VISIBLE_DEVICES=0", "/srv/running", running]
        words += ["/bin/sleep", "600"]
        done = debian.run(*words)
        assert done.rc == 0, done.stderr
        thread.start()
        try:
            for version in (NEXT, ""):
                installed.install(version, is_busy=True)
                printed = debian.run("gpuhook-hook", "--version").stdout
                assert printed == f"gpuhook-hook {version or __version__}\n"
                inside = debian.run(
                    "ctr", "task", "exec", "--exec-id", "x", running, "/bin/ls", "/dev"
                )
                assert "nvidia0" in inside.stdout, inside.stderr
                done = debian.run("gpuhook", "configure", "containerd", env=CONFIGURE_DEBIAN)
                assert done.stderr == "containerd is already configured\n"
                status = engine.stat()
                assert (status.st_mtime_ns, status.st_ino) == (written.st_mtime_ns, written.st_ino)
                users = debian.run(
                    "gpuhook", "configure", "users", "-o", "name", env=CONFIGURE_DEBIAN
                )
                assert users.stdout == f"{running}\n"
                assert sorted(path.name for path in installed.library.parent.iterdir()) == [
                    version or __version__
                ]
        finally:
            over.set()
            thread.join()
            debian.run("ctr", "task", "kill", "--signal", "KILL", running)
            debian.run("ctr", "task", "delete", "--force", running)
            debian.run("ctr", "container", "delete", running)
            subprocess.run(["rm", "-rf", str(root), str(bundle)], check=True)
    assert failures == []
    assert len(starts) > 5
    assert debian.run("gpuhook", "configure", "undo", "containerd", env=CONFIGURE_DEBIAN).rc == 0
    assert engine.read_bytes() == before


def test_purge_removes_settings_and_state(installed: Host) -> None:
    """Removal keeps the changed settings; a purge removes them, the state and the specs.

    A spec of device nodes names no hook: it has the options of `gpuhook refresh`.
    """
    debian = installed.debian
    generate_spec(installed)
    ours, theirs = "/run/cdi/amd.yaml", "/run/cdi/amd.json"
    for path, text in ((ours, "annotations: {io.gpuhook.options: ''}"), (theirs, "{}")):
        assert debian.run("sh", "-c", f'echo "$1" >{path}', "sh", text).rc == 0
    settings = debian.root / "etc/gpuhook/config.yaml"
    assert settings.read_bytes() == (CHECKOUT / "gpuhook/schemas/config.yaml").read_bytes()
    settings.write_text("runtime:\n  lowLevelRuntimes: [runc]\n")
    state = debian.root / "var/lib/gpuhook/somewhere"
    state.mkdir(parents=True)
    assert debian.dpkg("--remove", *REMOVED).rc == 0
    assert settings.exists()
    assert not installed.library.exists()
    assert debian.run("test", "-e", SPEC).rc == 0
    assert debian.dpkg("--purge", *REMOVED).rc == 0
    for path in ("/etc/gpuhook", "/var/lib/gpuhook", "/run/gpuhook", SPEC, ours):
        assert debian.run("test", "-e", path).rc == 1, path
    assert debian.run("rm", theirs).rc == 0
    debian.run("rmdir", "/run/cdi")


@pytest.mark.thorough
def test_purge_keeps_copies_of_engine_files(installed: Host) -> None:
    """If an engine is still configured, a purge prints where the copies of its files are."""
    record = installed.debian.root / "var/lib/gpuhook/configured/crio/record.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    done = installed.debian.dpkg("--purge", *REMOVED)
    assert "gpuhook configure undo crio" in done.stderr
    assert "kept /var/lib/gpuhook/configured/crio:" in done.stderr
    assert record.exists()
    subprocess.run(["rm", "-rf", str(installed.debian.root / "var/lib/gpuhook")], check=True)


def test_purge_restores_the_system(installed: Host) -> None:
    """Every byte is as before the installation, except the state of dpkg and containerd.

    This applies after an engine was configured and undone, too.
    """
    generate_spec(installed)
    for words in (("containerd",), ("undo", "containerd")):
        ran = installed.debian.run("gpuhook", "configure", *words, env=CONFIGURE_DEBIAN)
        assert ran.rc == 0, ran.stderr
        assert "changed /etc/containerd/config.toml" in ran.stderr
    (compat,) = package_builds.built().glob("*compat*.deb")
    assert installed.debian.dpkg("--install", compat).rc == 0
    assert installed.debian.run("gpuhook", "cdi", "list").rc == 0
    done = installed.debian.dpkg("--purge", "gpuhook-nvidia-compat", *REMOVED)
    assert done.rc == 0, done.stderr
    assert "not empty" not in done.stderr
    assert installed.listing() == installed.fresh


@pytest.mark.thorough
def test_rpm_scriptlets(host: Host) -> None:
    """With a shell and a Python in the root, byte code is compiled; erase removes everything."""
    debian = host.debian
    assert debian.dpkg("--purge", *REMOVED).rc == 0
    paths = sorted(package_builds.built().glob("*.rpm"))
    names = [path.name.partition(f"-{__version__}")[0] for path in paths]
    rpm = ["rpm", "--root", str(debian.root), "--dbpath", "/var/cache/rpm", "--nodeps"]
    helper = debian.root / "usr/bin/deb-systemd-helper"  # Red Hat's systems do not have it
    helper.rename(helper.with_name("away"))
    assert debian.run("sh", "-c", SYSTEMCTL).rc == 0
    calls = debian.root / "tmp/asked"
    calls.write_text("")
    done = subprocess.run([*rpm, "--install", *map(str, paths)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--no-reload preset gpuhook-refresh.timer" in calls.read_text()
    calls.write_text("")
    (again,) = [str(path) for path in paths if path.name.startswith(f"gpuhook-{__version__}")]
    done = subprocess.run([*rpm, "--install", "--force", again], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "preset" not in calls.read_text()
    assert len(list(host.library.rglob("*.pyc"))) == len(list(host.library.rglob("*.py"))) > 600
    assert (host.library / "gpuhook.entry.runtime.bundle").exists()
    assert debian.run("gpuhook", "--version").rc == 0
    done = subprocess.run([*rpm, "--erase", *names], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not host.library.parent.exists()
