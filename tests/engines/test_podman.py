# SPDX-License-Identifier: Apache-2.0
"""podman of each release, of root and of a user, with runc and crun on cgroup v1 and v2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.contract.installation import ALL_CONTROL
from tests.contract.views import view
from tests.engines.engine_node import EngineNode, low_level_runtime, on_cgroup
from tests.engines.podman_user import (
    IMAGE,
    UID,
    USER,
    WRAPPER,
    PodmanUser,
    document,
    gpus,
)

Covers = Callable[..., None]
DEVICE = "--device=nvidia.com/gpu=2"
REQUEST = "--env=NVIDIA_VISIBLE_DEVICES=2"
ACCOUNTS = [f"{user}-{runtime}" for user in ("root", "rootless") for runtime in ("runc", "crun")]
ROOT = pytest.mark.parametrize("account", ACCOUNTS[:2], indirect=True)
ROOTLESS = pytest.mark.parametrize("account", ACCOUNTS[2:], indirect=True)


@pytest.fixture(scope="module", params=ACCOUNTS)
def account(request: pytest.FixtureRequest) -> str:
    """Return a user and a low-level runtime."""
    return str(request.param)


@pytest.fixture(scope="module", params=["v1", "v2"])
def cgroup(request: pytest.FixtureRequest) -> str:
    """Return a version of cgroups."""
    return str(request.param)


@pytest.fixture(scope="module")
def podman(node: EngineNode, podman_image: str, account: str, cgroup: str) -> Iterator[PodmanUser]:
    """Yield the podman of root or of a user, with a low-level runtime on a cgroup version."""
    del podman_image
    user, _, runtime = account.partition("-")
    with on_cgroup(node, cgroup) as inner, low_level_runtime(inner, runtime):
        made = PodmanUser(inner, user == "rootless", runtime)
        yield made
        if made.is_rootless:  # its first process keeps the mount namespace
            made.podman("system", "migrate")


def reported(podman: PodmanUser, covers: Covers, integration: str) -> None:
    version = podman.node.version("podman", "--version")
    covers("podman", version, integration, podman.name)


def test_device(podman: PodmanUser, covers: Covers) -> None:
    """A device of the CDI spec: its node, the control nodes, and no other GPU."""
    seen = podman.start(DEVICE).view
    assert gpus(seen) == {podman.node.device(2)}
    assert set(seen.gpus()) == {podman.node.device(2), *ALL_CONTROL}
    assert seen.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    reported(podman, covers, "--device nvidia.com/gpu=")


def test_gpus_option(podman: PodmanUser, covers: Covers) -> None:
    """podman 5 takes `all` and the name of a CDI device; podman 4 ignores the option."""
    every = {podman.node.device(index) for index in range(8)}
    is_known = podman.version >= (5,)
    assert gpus(podman.start("--gpus=all").view) == (every if is_known else set())
    assert gpus(podman.start("--gpus=2").view) == ({podman.node.device(2)} if is_known else set())
    if is_known:
        assert "nvidia.com/gpu=device=2" in podman.start("--gpus=device=2").stderr
        reported(podman, covers, "--gpus")


def test_wrapper(podman: PodmanUser, covers: Covers) -> None:
    """gpuhook-runtime handles the variable, and a CDI annotation of the command line."""
    for option in (REQUEST, "--annotation=cdi.k8s.io/test=nvidia.com/gpu=2"):
        seen = podman.start(option, runtime=WRAPPER).view
        assert gpus(seen) == {podman.node.device(2)}, option
    assert not podman.start(runtime=WRAPPER).view.gpus()
    reported(podman, covers, "--runtime gpuhook-runtime")


def test_configured(podman: PodmanUser, covers: Covers) -> None:
    """`configure podman` of root or of a user gives GPU 2, and undo restores each byte."""
    home = f"/home/{USER}/.config/containers" if podman.is_rootless else "/etc/containers"
    podman.run("mkdir", "-p", home)
    listing = ["sh", "-c", f"cd {home}; find . -type f -exec sha256sum {{}} + | sort"]
    before = podman.check(*listing)
    for route, runtime, integration in (
        ("hook", "", "hooks.d"),
        ("wrapper", "nvidia", "--runtime nvidia"),
    ):
        podman.check("gpuhook", "configure", "podman", "--route", route)
        try:
            seen = podman.start(REQUEST, runtime=runtime).view
        finally:
            podman.check("gpuhook", "configure", "undo", "podman")
        assert gpus(seen) == {podman.node.device(2)}
        assert podman.check(*listing) == before
        reported(podman, covers, integration)


def test_container_keeps_its_gpu(podman: PodmanUser) -> None:
    """A container has its GPU after stop, start and restart; a process of `exec` has it too."""
    mine = {podman.node.device(2)}
    for options, runtime in ([DEVICE], ""), ([REQUEST], WRAPPER):
        with podman.sleeping(*options, runtime=runtime) as name:
            assert gpus(podman.look(name)) == mine
            podman.podman("stop", "--time=0", name)
            podman.podman("start", name)
            assert gpus(podman.look(name)) == mine
            podman.podman("restart", "--time=0", name)
            assert gpus(podman.look(name)) == mine


def test_pod(podman: PodmanUser) -> None:
    """A container of a pod without an infra container has its GPU."""
    podman.podman("pod", "create", "--infra=false", "--name=train")
    try:
        assert gpus(podman.start("--pod=train", DEVICE).view) == {podman.node.device(2)}
    finally:
        podman.podman("pod", "rm", "--force", "train")


def test_rootfs(podman: PodmanUser) -> None:
    """A container on a directory, not on an image."""
    place = podman.check("mktemp", "-d").strip()
    podman.check("cp", "-r", "/srv/podman-image/.", place)
    image = ["--rootfs", place]
    assert gpus(podman.start(DEVICE, image=image).view) == {podman.node.device(2)}
    podman.check("rm", "-r", "--force", place)


@pytest.mark.parametrize("userns", ["keep-id", "auto"])
def test_user_namespace(podman: PodmanUser, userns: str) -> None:
    """gpuhook-runtime gives a GPU; podman 5 hides config.json from the hook of the CDI spec."""
    option = f"--userns={userns}"
    if podman.version < (5,) and userns == "keep-id" and not podman.is_rootless:
        assert "keep-id is only supported in rootless mode" in podman.start(option).stderr
        return
    mine = {podman.node.device(2)}
    assert gpus(podman.start(option, REQUEST, runtime=WRAPPER).view) == mine
    done = podman.start(option, DEVICE)
    if done.rc:
        assert (podman.version >= (5,), userns) == (True, "auto"), done
        assert "GH1649" in done.stderr or podman.runtime == "crun", done
    else:
        assert gpus(done.view) == mine


def test_live_commands(podman: PodmanUser, covers: Covers) -> None:
    """Attach, detach and repair change a running container; other commands find it by its id."""
    node = podman.node
    with podman.sleeping(DEVICE) as name:
        attached = podman.gpuhook("attach", name, "--device", "5")
        assert attached.rc == 0, attached
        assert gpus(podman.look(name)) == {node.device(2), node.device(5)}
        detached = podman.gpuhook("detach", name[:12], "--device", "5", "--force")
        assert gpus(podman.look(name)) == {node.device(2)}, detached
        assert podman.gpuhook("repair", name).rc == 0
        (held,) = document(podman.run("gpuhook", "ps", "-o", "json"))["containers"]
        assert held["id"] == name
        assert f"running, pid {held['pid']}" in podman.check("gpuhook", "inspect", name)
        assert "by the engine's CDI" in podman.check("gpuhook", "explain", name)
        reported(podman, covers, "attach, detach, repair")


def test_compare(podman: PodmanUser) -> None:
    """podman cannot leave out parts of gpuhook's spec: that is no difference."""
    with podman.sleeping(DEVICE) as name:
        (one,) = document(podman.run("gpuhook", "compare", "-o", "json", name))["containers"]
    assert (one["givenBy"], one["counts"]["differences"]) == ("gpuhook-cdi", 0), one["counts"]
    assert one["counts"]["known"]


@ROOTLESS
def test_changes_need_the_user_namespace(podman: PodmanUser) -> None:
    """Without `podman unshare` a user is given GH1749, and root GH1756."""
    with podman.sleeping(DEVICE) as name:
        done = podman.run("gpuhook", "attach", name, "--device", "5")
        assert (done.rc, "GH1749" in done.stderr) == (1, True), done
        held = podman.run("gpuhook", "detach", name, "--device", "2").stderr
        assert ("GH1753" in held, "conmon" in held) == (True, False), held
        for words in ["attach", name, "--device", "5"], ["compare", name]:
            done = podman.node.run("gpuhook", *words)
            assert f"GH1756: container {name} belongs to user {UID}" in done.stderr, done
        (held,) = document(podman.node.run("gpuhook", "ps", "-o", "json"))["containers"]
        assert (held["id"], held["route"]) == (name, "unknown")
        assert gpus(podman.look(name)) == {podman.node.device(2)}


@ROOT
@pytest.mark.releases("trixie", "forky")
def test_repair_after_update(podman: PodmanUser) -> None:
    """`podman update` of podman 5 writes config.json without the rules of the CDI device.

    `repair` has them. A rootless container has no device rules.
    """
    with podman.sleeping(DEVICE) as name:
        podman.run("podman", "--runtime", podman.runtime, "update", "--cpu-shares=64", name)
        assert podman.gpuhook("repair", name).rc == 0
        assert gpus(podman.look(name)) == {podman.node.device(2)}


@contextmanager
def working_container(podman: PodmanUser) -> Iterator[list[str]]:
    """Yield the words that run a command in a working container of buildah, but for options."""
    name = podman.check("buildah", "from", "--pull-never", IMAGE).strip()
    try:
        yield ["buildah", "run", "--isolation=oci", "--network=none", name]
    finally:
        podman.check("buildah", "rm", name)


def test_buildah_with_the_wrapper(podman: PodmanUser, covers: Covers) -> None:
    """A command of `buildah run` gets its GPU by gpuhook-runtime."""
    with working_container(podman) as words:
        options = [f"--runtime={WRAPPER}", REQUEST]
        seen = view(podman.check(*words[:-1], *options, words[-1], "/probe"))
    assert gpus(seen) == {podman.node.device(2)}
    version = podman.node.version("buildah", "--version")
    covers("buildah", version, "--runtime gpuhook-runtime", podman.name)


def test_buildah_device(podman: PodmanUser, covers: Covers) -> None:
    """A build gets a device of the CDI spec since buildah 1.39.

    buildah also writes a rule without access. Of root's containers, runc refuses it, and cgroup v1
    does; crun on v2 ignores it.
    """
    version = podman.node.version("buildah", "--version")
    file = "/tmp/Containerfile"
    podman.node.path(file).write_text(f'FROM {IMAGE}\nRUN ["/probe"]\n', encoding="utf-8")
    words = ["buildah", "build", "--isolation=oci", "--network=none", f"--file={file}"]
    is_known = tuple(map(int, version.split("."))) >= (1, 39)
    words += ["--cdi-config-dir=/var/run/cdi"] if is_known else []
    words += [f"--runtime={podman.runtime}", DEVICE, "/srv/podman-image/etc"]
    done = podman.run(*words)
    if not is_known:
        assert "nvidia.com/gpu=2: no such file or directory" in done.stderr
    elif podman.runtime == "runc" and not podman.is_rootless:
        assert "device access at 6 field cannot be empty" in done.stderr
    elif not (podman.is_rootless or podman.has_cgroup_v2):
        assert "`devices.allow`: Invalid argument" in done.stderr
    else:
        printed = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert printed, done
        seen = view(printed[0])
        assert gpus(seen) == {podman.node.device(2)}
        covers("buildah", version, "build --device nvidia.com/gpu=", podman.name)
