# SPDX-License-Identifier: Apache-2.0
"""gpuhook-hook: the changes of createContainer and prestart hooks in a root file system."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.record import containers, images
from tests.record.box import Box
from tests.record.case import Case

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
CUDA = f"{LIBRARIES}/libcuda.so.580.95.05"
ML = f"{LIBRARIES}/libnvidia-ml.so.580.95.05"
APPLY = ("apply", "--library", f"{CUDA}=libcuda.so.1", "--library", f"{ML}=libnvidia-ml.so.1")
LINK = ("--link", f"libcuda.so.1::{LIBRARIES}/libcuda.so")
ROOTS = ("debian", "lib64", "musl", "distroless", "empty")
Prepared = Callable[[Box], None] | None
FOUND: list[Case] = []


def hook(
    name: str,
    *words: str,
    root: str = "debian",
    before: Prepared = None,
    env: tuple[str, ...] = (),
    state: str | None = None,
    scene: str = "h100",
    times: int = 1,
    **oci: Any,
) -> None:
    """Add a case of a hook with these words for a container of `env` and `oci`."""
    action = partial(_run, words, root, before, (env, oci), state, times)
    FOUND.append(Case("hooks", name, scene, action))


def _run(
    words: tuple[str, ...],
    root: str,
    before: Prepared,
    config: tuple[tuple[str, ...], dict[str, Any]],
    state: str | None,
    times: int,
    box: Box,
) -> None:
    images.root(root)
    env, oci = config
    box.write("bundle/config.json", images.text([*env], **oci))
    _driver_files(box, root)
    if before is not None:
        before(box)
    for _ in range(times):
        box.call("gpuhook-hook", *words, stdin=STATE if state is None else state)


def _state(**more: Any) -> str:
    known = {"ociVersion": "1.0.2", "id": "c1", "status": "creating", "pid": 0}
    return json.dumps({**known, "bundle": images.BUNDLE, **more})


STATE = _state()


def _driver_files(box: Box, root: str) -> None:
    """Put the driver's libraries into the root, which the runtime would mount."""
    directory = Path(f"{images.ROOT}{LIBRARIES}")
    directory.mkdir(parents=True, exist_ok=True)
    for name in (CUDA, ML):
        source = Path(box.node + name)
        if source.exists():
            (directory / source.name).write_bytes(source.read_bytes())


def cases() -> list[Case]:
    """Return all cases."""
    if not FOUND:
        for add in (_apply, _trees, _wrong, _toolkit, _prestart, _live, _limit):
            add()
    return FOUND


def _apply() -> None:
    for root in ROOTS:
        hook(f"apply-{root}", *APPLY, *LINK, root=root)
        hook(f"apply-twice-{root}", *APPLY, *LINK, root=root, times=2)
        hook(f"apply-links-{root}", "apply", *LINK, root=root)
        hook(f"apply-compat-{root}", *APPLY, *_COMPAT, root=root, before=_compat("620.10"))
    for skipped in ("links", "loader-cache", "profile", "all"):
        hook(f"apply-skip-{skipped}", *APPLY, *LINK, "--skip", skipped)
    for version in ("570.10", "580.95.05", "620.10", "x"):
        hook(f"apply-compat-version-{version}", *APPLY, *_COMPAT, before=_compat(version))
    hook("apply-whole", *APPLY, *LINK, "--whole")
    hook("apply-chmod", "apply", "--chmod", "0755:/dev", "--chmod", "0711:/usr/bin")
    hook("apply-chmod-missing", "apply", "--chmod", "0755:/nowhere")
    hook("apply-params", "apply", "--driver-params", "--host-root", "/mnt/node/h100")
    hook("apply-ldconfig-missing", *APPLY, "--ldconfig", "/nowhere/ldconfig")
    hook("apply-relative-root", *APPLY, *LINK, before=_relative_root)
    graphics = f"{LIBRARIES}/libnvidia-eglcore.so.580.95.05"
    hook("apply-profile", *APPLY, "--library", f"{graphics}=libnvidia-eglcore.so.580.95.05")
    hook("apply-optional", *APPLY, "--optional=newer")
    hook("apply-fingerprint", "apply", "--fingerprint", "boot=x,driver=1", *_HOST)
    hook("apply-libcuda-missing", "apply", "--fingerprint", "boot=x", "--libcuda", "/nowhere")
    unmet = ("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_REQUIRE_CUDA=cuda>=99")
    driver = ("--cuda-version", "13.0", "--driver-version", "580.95.05")
    hook("apply-require-unmet", *APPLY, *driver, env=unmet)
    hook("apply-require-met", *APPLY, *driver, env=("NVIDIA_REQUIRE_CUDA=cuda>=12.0",))
    hook("apply-require-disabled", *APPLY, *driver, env=(*unmet, "NVIDIA_DISABLE_REQUIRE=1"))
    gpus = ("--gpus", "0-7=9.0,nvidia")
    hook("apply-require-arch", *APPLY, *gpus, env=("NVIDIA_REQUIRE_CUDA=arch>=10",))
    hook("apply-ledger", *APPLY, annotations={"io.kubernetes.cri.sandbox-name": "pod-1"})


_HOST = ("--host-root", "/mnt/node/h100")
_COMPAT = ("--cuda-compat", "/usr/local/cuda/compat", "--driver-version", "580.95.05")


def _compat(version: str) -> Prepared:
    """Return a function that adds CUDA's compatibility libraries to the image."""

    def made(box: Box) -> None:
        place = f"{images.ROOT}/usr/local/cuda/compat"
        box.write(f"{place}/libcuda.so.{version}", Path(box.node + CUDA).read_bytes())
        box.link(f"{place}/libcuda.so.1", f"libcuda.so.{version}")
        box.link(f"{place}/libcuda.so", "libcuda.so.1")

    return made


def _relative_root(box: Box) -> None:
    document = images.config([], root={"path": "../rootfs"})
    box.write("bundle/config.json", json.dumps(document))


def _trees() -> None:
    """Add root file systems that differ from those of valid images."""
    root = images.ROOT
    trees: dict[str, Callable[[Box], object]] = {
        "link-there": lambda box: box.link(f"{root}{LIBRARIES}/libcuda.so", "mine.so"),
        "link-right": lambda box: box.link(f"{root}{LIBRARIES}/libcuda.so", "libcuda.so.1"),
        "link-absolute": lambda box: box.link(f"{root}{LIBRARIES}/libcuda.so", "/etc/passwd"),
        "file-there": lambda box: box.write(f"{root}{LIBRARIES}/libcuda.so", "mine\n"),
        "directory-there": lambda box: box.directory(f"{root}{LIBRARIES}/libcuda.so/x"),
        "soname-there": lambda box: box.write(f"{root}{LIBRARIES}/libcuda.so.1", "mine\n"),
        "cache-garbage": lambda box: box.write(f"{root}/etc/ld.so.cache", b"garbage\0\xff" * 50),
        "cache-empty": lambda box: box.write(f"{root}/etc/ld.so.cache", ""),
        "cache-directory": lambda box: box.directory(f"{root}/etc/ld.so.cache"),
        "cache-link": lambda box: box.link(f"{root}/etc/ld.so.cache", "/mnt/case/escape"),
        "conf-there": lambda box: box.write(f"{root}/etc/ld.so.conf.d/mine.conf", "/opt/lib\n"),
        "own-conf-there": lambda box: box.write(f"{root}/etc/ld.so.conf.d/00-gpuhook.conf", "x\n"),
        "conf-binary": lambda box: box.write(f"{root}/etc/ld.so.conf", b"\0\xff\n" * 20),
        "conf-loop": lambda box: box.write(
            f"{root}/etc/ld.so.conf.d/loop.conf", "include /etc/ld.so.conf\n"
        ),
        "ldconfig-there": lambda box: box.write(
            f"{root}/usr/sbin/ldconfig", "#!/bin/false\n", 0o755
        ),
        "library-gone": lambda _: Path(f"{root}{CUDA}").unlink(),
        "library-text": lambda box: box.write(f"{root}{CUDA}", "no library\n"),
        "read-only-etc": lambda _: Path(f"{root}/etc").chmod(0o555),
        "preload": lambda box: box.write(f"{root}/etc/ld.so.preload", "/x.so\n"),
    }
    for name, before in trees.items():
        hook(f"tree-{name}", *APPLY, *LINK, before=_only(before))
    for name, (path, target) in {
        "link-etc": ("etc-link", "/mnt/case/outside"),
        "link-loop": ("loop", "loop"),
    }.items():
        hook(f"tree-{name}", "apply", "--link", f"a::/{path}/b", before=_linked(path, target))
    hook("tree-dots", "apply", "--link", "a::/../../outside/b", root="empty")


def _only(before: Callable[[Box], object]) -> Prepared:
    def made(box: Box) -> None:
        before(box)

    return made


def _linked(path: str, target: str) -> Prepared:
    def made(box: Box) -> None:
        box.directory("outside")
        box.link(f"{images.ROOT}/{path}", target)

    return made


def _wrong() -> None:
    arguments: dict[str, tuple[str, ...]] = {
        "no-value": ("apply", "--link"),
        "unknown-option": ("apply", "--what", "x"),
        "link-relative": ("apply", "--link", "a::b"),
        "link-malformed": ("apply", "--link", "a"),
        "library-relative": ("apply", "--library", "a=b"),
        "library-no-soname": ("apply", "--library", "/a"),
        "chmod-malformed": ("apply", "--chmod", "x:/dev"),
        "chmod-set-uid": ("apply", "--chmod", "4755:/dev"),
        "gpus-malformed": ("apply", "--gpus", "0"),
        "skip-unknown": ("apply", "--skip", "x"),
        "since-newer": ("apply", "--since", "99.0"),
        "since-malformed": ("apply", "--since", "x"),
        "ldconfig-relative": ("apply", "--ldconfig", "ldconfig"),
        "control": ("apply", "--link", "a\nb::/c"),
        "verb": ("what",),
        "verb-option": ("--what",),
        "flags-of-nvidia": ("-config=/x", "-debug", "prestart"),
        "config-of-nvidia": ("-config", "/x", "poststop"),
        "poststart": ("poststart",),
        "prestart-option": ("prestart", "--what"),
    }
    for name, words in arguments.items():
        hook(f"words-{name}", *words, root="empty")
    states = {
        "empty": "",
        "broken": "{",
        "list": "[]",
        "no-bundle": '{"id":"c1"}',
        "bundle-number": '{"id":"c1","bundle":5}',
        "bundle-missing": _state(bundle="/nowhere"),
        "bundle-path": json.dumps({"id": "c1", "bundlePath": images.BUNDLE, "pid": 1}),
        "no-id": json.dumps({"bundle": images.BUNDLE}),
        "odd-id": _state(id="../x"),
    }
    for name, state in states.items():
        hook(f"state-{name}", *APPLY, root="empty", state=state)
        gpu = ("NVIDIA_VISIBLE_DEVICES=0",)
        hook(f"state-prestart-{name}", "prestart", root="empty", state=state, env=gpu)
    hook("config-missing", *APPLY, root="empty", before=_without_config)
    hook("config-broken", *APPLY, root="empty", before=_broken_config)


def _without_config(_: Box) -> None:
    Path(f"{images.BUNDLE}/config.json").unlink()


def _broken_config(box: Box) -> None:
    box.write("bundle/config.json", "{")


def _toolkit() -> None:
    folder = ("--folder", LIBRARIES)
    compat = "--host-driver-version=580.95.05"
    hooks: dict[str, tuple[str, ...]] = {
        "create-symlinks": ("--link", f"libcuda.so.1::{LIBRARIES}/libcuda.so"),
        "update-ldcache": folder,
        "enable-cuda-compat": (compat,),
        "chmod": ("--mode", "755", "--path", "/dev"),
        "disable-device-node-modification": (),
        "update-application-profile": (),
        "of-a-newer-toolkit": ("--what", "ever"),
    }
    for name, words in hooks.items():
        hook(f"toolkit-{name}", "toolkit", name, *words, before=_compat("620.10"))
    hook("toolkit-no-name", "toolkit")
    hook("toolkit-wrong-option", "toolkit", "create-symlinks", "--what")
    hook("toolkit-wrong-link", "toolkit", "create-symlinks", "--link", "a")
    hook("toolkit-ldcache-missing", "toolkit", "update-ldcache", "--folder", "/nowhere")


def _prestart() -> None:
    gpu = ("NVIDIA_VISIBLE_DEVICES=0",)
    for dry in ((), ("--dry-run",)):
        kind = "dry" if dry else "real"
        hook(f"prestart-nothing-{kind}", "prestart", *dry)
        hook(f"prestart-void-{kind}", "prestart", *dry, env=("NVIDIA_VISIBLE_DEVICES=void",))
        hook(f"prestart-pid-zero-{kind}", "prestart", *dry, env=gpu)
        hook(f"prestart-pid-own-{kind}", "prestart", *dry, env=gpu, state=_state(pid=2))
        hook(f"prestart-pid-gone-{kind}", "prestart", *dry, env=gpu, state=_state(pid=4194000))
        hook(f"prestart-pid-text-{kind}", "prestart", *dry, env=gpu, state=_state(pid="x"))
        stopped = _state(status="stopped")
        hook(f"prestart-stopped-{kind}", "prestart", *dry, env=gpu, state=stopped)
        hook(f"prestart-unknown-{kind}", "prestart", *dry, env=("NVIDIA_VISIBLE_DEVICES=9",))
        served: dict[str, Any] = {"io.gpuhook.record": {"env": []}}
        hook(f"prestart-served-{kind}", "prestart", *dry, env=gpu, **served)
        ours = [{"path": "/x/gpuhook-hook", "args": ["gpuhook-hook", "apply"]}]
        hook(f"prestart-engine-{kind}", "prestart", *dry, env=gpu, hooks={"createContainer": ours})
        every = ("NVIDIA_VISIBLE_DEVICES=all",)
        hook(f"prestart-no-driver-{kind}", "prestart", *dry, env=every, scene="empty")


def _live() -> None:
    """Add hooks for a container whose process exists: their plans, without device rules."""
    gpu = "NVIDIA_VISIBLE_DEVICES=0"
    cases_by_name: dict[str, tuple[str, tuple[str, ...]]] = {
        "index": ("debian", (gpu,)),
        "all": ("debian", ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all")),
        "musl": ("musl", (gpu,)),
        "lib64": ("lib64", (gpu,)),
        "distroless": ("distroless", (gpu,)),
        "unmet": ("debian", (gpu, "NVIDIA_REQUIRE_CUDA=cuda>=99")),
        "unknown": ("debian", ("NVIDIA_VISIBLE_DEVICES=9",)),
        "nothing": ("debian", ()),
    }
    for name, (root, env) in cases_by_name.items():
        action = partial(_run_live, root, env)
        FOUND.append(Case("hooks", f"live-dry-{name}", "h100", action))
        action = partial(_run_live, root, env, is_dry=False)
        FOUND.append(Case("hooks", f"live-{name}", "h100", action))


def _run_live(root: str, env: tuple[str, ...], box: Box, *, is_dry: bool = True) -> None:
    images.root(root)
    box.write("bundle/config.json", images.text([*env]))
    pid = containers.start(images.ROOT)
    state = _state(pid=pid, status="created")
    if is_dry:
        box.call("gpuhook-hook", "prestart", "--dry-run", stdin=state)
        return
    box.call("gpuhook-hook", "prestart", stdin=state)
    box.note("in the container", containers.view(pid))
    box.call("gpuhook-hook", "prestart", "--dry-run", stdin=state)


def _limit() -> None:
    hook("limit-nothing", "limit")
    hook("limit-no-value", "limit", "--gpu")
    hook("limit-malformed", "limit", "--gpu", "x")
    hook("limit-required", "limit", "--gpu", "GPU-x=4294967296,0", "--required")
    hook("limit-unknown-option", "limit", "--what", "x")
