# SPDX-License-Identifier: Apache-2.0
"""explain predicts gpuhook-runtime: the changed config.json, changes of the root, the fault."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.entry import oci_command, runtime
from gpuhook.errors import GpuhookError, fault
from gpuhook.explain import explain_document as documents
from gpuhook.explain import explain_graph, explain_inputs, node_context, simulate
from gpuhook.explain.text import explain_text
from gpuhook.host.hot import settings
from gpuhook.node import settings_file
from gpuhook.node.kept_log import KeptLog
from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.depth import depth

LIB = "/usr/lib/x86_64-linux-gnu"
HOOK_ARGS = ["gpuhook-hook", "apply"]
HOOK_ARGS += ["--library", f"{LIB}/libcuda.so.550.1=libcuda.so.1"]
HOOK_ARGS += ["--library", f"{LIB}/libnvidia-encode.so.550.1=libnvidia-encode.so.1"]
HOOK_ARGS += ["--library", f"{LIB}/libEGL_nvidia.so.550.1=libEGL_nvidia.so.0"]
HOOK_ARGS += ["--link", f"libcuda.so.1::{LIB}/libcuda.so", "--driver-version", "550.1"]
HOOK_ARGS += ["--cuda-compat", "/usr/local/cuda/compat", "--driver-params"]
OURS = {"path": "/usr/bin/gpuhook-hook", "args": HOOK_ARGS, "env": ["PATH=/bin"]}
OTHER_ARGS = ["gpuhook-hook", "apply", "--library", "/opt/libother.so.1=libother.so.1"]
FOREIGN = {"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x", "prestart"]}


def _mount(path: str) -> dict[str, Any]:
    return {"hostPath": path, "containerPath": path, "options": ["ro", "nosuid", "nodev", "bind"]}


def _device(name: str, *paths: str) -> dict[str, Any]:
    nodes = [{"path": path, "hostPath": "/dev/null"} for path in paths]
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        _device("0", "/dev/nvidia0"),
        _device("1", "/dev/nvidia1"),
        _device("GPU-1", "/dev/nvidia1"),
        _device("gone", "/dev/nvidia2"),
        _device("all", "/dev/nvidia0", "/dev/nvidia1"),
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [
            {"path": "/dev/nvidiactl", "hostPath": "/dev/zero"},
            {"path": "/dev/nvidia-uvm", "hostPath": "/dev/full"},
            {"path": "/dev/nvidia-modeset", "hostPath": "/dev/full"},
        ],
        "mounts": [
            _mount(f"{LIB}/libcuda.so.550.1"),
            _mount(f"{LIB}/libnvidia-encode.so.550.1"),
            _mount(f"{LIB}/libEGL_nvidia.so.550.1"),
        ],
        "hooks": [{"hookName": "createContainer", **OURS}],
    },
}
SPEC["devices"][3]["containerEdits"]["deviceNodes"][0]["hostPath"] = "/dev/not-there"  # type: ignore[index]
OTHER = {
    "cdiVersion": "0.6.0",
    "kind": "other.com/thing",
    "devices": [_device("a", "/dev/thing")],
    "containerEdits": {
        "hooks": [
            {"hookName": "createContainer", "path": "/usr/bin/gpuhook-hook", "args": OTHER_ARGS}
        ]
    },
}

GOOD = ["0", "1", "GPU-1", "GPU-1::3", "all", "none", "nvidia.com/gpu=0"]
BAD = ["0::x", "void", "", "gone", "7", "vendor.com/x=y"]
NAMES = st.sampled_from([*GOOD, *GOOD, *GOOD, "other.com/thing=a", *BAD])
VALUES = st.lists(NAMES, max_size=4).map(",".join)
_ENTRIES = st.lists(
    st.one_of(
        VALUES.map("NVIDIA_VISIBLE_DEVICES={}".format),
        st.sampled_from(
            [
                "PATH=/bin",
                "NVIDIA_DRIVER_CAPABILITIES=all",
                "NVIDIA_DRIVER_CAPABILITIES=utility",
                "NVIDIA_DRIVER_CAPABILITIES=what",
                "NVIDIA_GPU_MEMORY_LIMIT=2048",
                "NVIDIA_GPU_MEMORY_LIMIT=much",
                "GPUHOOK_REPLICAS=GPU-1::4",
                "no-variable",
            ]
        ),
    ),
    max_size=4,
)
ENV = st.one_of(
    _ENTRIES,
    st.builds(lambda names, more: [f"NVIDIA_VISIBLE_DEVICES={names}", *more], VALUES, _ENTRIES),
)
DEVICES = "/var/run/nvidia-container-devices"
PLACES = st.sampled_from(
    f"/proc /usr /usr/lib {LIB} /etc /etc/ld.so.cache /etc/hosts /opt /lib {DEVICES}/0"
    f" {DEVICES}/cdi/nvidia.com/gpu/1 /var/run/gpuhook/memory/GPU-1,hard=2048,soft=1024".split()
)
MOUNTS = st.lists(PLACES.map(lambda p: {"destination": p, "source": "/dev/null"}), max_size=3)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["cdi.k8s.io/a", "cdi.k8s.io/b", "x"]), VALUES, max_size=2
)
CONFIG = st.fixed_dictionaries(
    {
        "ociVersion": st.just("1.0.2"),
        "process": st.fixed_dictionaries(
            {"env": ENV},
            optional={
                "capabilities": st.sampled_from([{"bounding": ["CAP_SYS_ADMIN"]}, {}]),
                "user": st.sampled_from([{"uid": 0, "gid": 0}, {"uid": 1000, "gid": 1000}]),
            },
        ),
        "root": st.sampled_from([{"path": "rootfs"}] * 6 + [{"path": "gone"}, {}]),
        "mounts": MOUNTS,
    },
    optional={
        "annotations": ANNOTATIONS,
        "linux": st.sampled_from(
            [
                {},
                {"namespaces": [{"type": "user"}]},
                {
                    "namespaces": [{"type": "user"}],
                    "uidMappings": [{"containerID": 0, "hostID": 12345, "size": 10}],
                    "gidMappings": [{"containerID": 0, "hostID": 12345, "size": 10}],
                },
                {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 9, "minor": 9}]},
                [],
            ]
        ),
        "hooks": st.sampled_from(
            [{"prestart": [FOREIGN]}, {"createContainer": [OURS]}, {"prestart": [FOREIGN, OURS]}]
        ),
        "x-unknown": st.just([1, None]),
    },
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "request": st.fixed_dictionaries(
            {},
            optional={
                "acceptVolumeMounts": st.booleans(),
                "acceptEnvWhenUnprivileged": st.booleans(),
                "onMissingDriver": st.sampled_from(["start", "refuse"]),
            },
        ),
        "limits": st.sampled_from([{"onFailure": "start"}, {"onFailure": "refuse"}]),
    },
)
# The files, links ("->") and directories ("/") of the image.
IMAGE = st.lists(
    st.sampled_from(
        [
            "etc/ld.so.conf",
            "etc/ld.so.cache",
            f"{LIB[1:]}/libcuda.so.1",
            f"{LIB[1:]}/libcuda.so.1->libcuda.so.550.1",
            f"{LIB[1:]}/libcuda.so.1/",
            f"{LIB[1:]}/libcuda.so->libcuda.so.1",
            "usr->opt",
            "usr/lib->/opt/lib",
            "etc->nowhere",
            "usr",
            "lib/ld-musl-x86_64.so.1",
            "lib->usr/lib",
            "opt->opt",
            "usr/local/cuda/compat/libcuda.so.560.1",
        ]
    ),
    max_size=5,
)


def _create_image(root: Path, parts: list[str]) -> None:
    """Create the parts of the image that do not conflict with earlier ones."""
    root.mkdir()
    for part in parts:
        name, link, target = part.partition("->")
        place = root / name.rstrip("/")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if link:
                place.symlink_to(target)
            elif part.endswith("/"):
                place.mkdir()
            else:
                place.write_bytes(b"")
        except OSError:
            continue


def _tree(root: Path) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for directory, directories, names in os.walk(root):
        for name in [*directories, *names]:
            path = Path(directory, name)
            place = str(path.relative_to(root))
            if path.is_symlink():
                found[place] = "-> " + os.readlink(path)
            else:
                found[place] = path.read_bytes() if path.is_file() else "directory"
    return found


def _difference(before: dict[str, str | bytes], after: dict[str, str | bytes]) -> dict[str, Any]:
    """Return the changed links and files by path."""
    assert before.keys() <= after.keys()
    return {
        place: what
        for place, what in after.items()
        if before.get(place) != what and what != "directory"
    }


def _predicted(explained: simulate.SimulatedAnswer, root: Path) -> dict[str, Any]:
    """Return the links and files that explain predicts, by their real paths."""
    found = {}
    with Root(str(root)) as opened:
        for change in explained.changes:
            parent, _, name = change.path.rpartition("/")
            place = opened.real(parent).strip("/") + "/" + name
            found[place] = f"-> {change.target}" if change.data is None else change.data
    return found


@pytest.fixture(scope="module")
def node() -> Iterator[Path]:
    """Return a node with programs, specs and a driver."""
    with TemporaryDirectory(prefix="gpuhook-node-") as name, pytest.MonkeyPatch.context() as patch:
        place = Path(name)
        for directory in ("bin", "cdi", "host/sys/module/nvidia", "host/proc"):
            (place / directory).mkdir(parents=True)
        (place / "host/sys/module/nvidia/version").write_text("550.1\n", encoding="ascii")
        for program in ("gpuhook-runtime", "gpuhook-hook", "runc"):
            (place / "bin" / program).write_text("#!/bin/sh\n", encoding="ascii")
            (place / "bin" / program).chmod(0o755)
        (place / "cdi/nvidia.json").write_text(json.dumps(SPEC), encoding="utf-8")
        (place / "cdi/other.json").write_text(json.dumps(OTHER), encoding="utf-8")
        (place / "cdi/broken.json").write_text("{", encoding="utf-8")
        patch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
        patch.setenv("GPUHOOK_STATE_DIR", str(place / "state"))
        patch.setenv("GPUHOOK_CONFIG", str(place / "config.yaml"))
        patch.setenv("GPUHOOK_HOST_ROOT", str(place / "host"))
        yield place


def _configure(node: Path, document: dict[str, Any]) -> None:
    document = {**document, "cdi": {"specDirs": [str(node / "cdi")]}}
    path = node / "config.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    settings.store(str(path), os.stat(path), document)


def _create(node: Path, bundle: Path) -> GpuhookError | None:
    """Run gpuhook-runtime's code for `create`; return why the container is refused, or None."""
    command = oci_command.parse(["create", "--bundle", str(bundle), "one"])
    launcher, log = str(node / "bin/gpuhook-runtime"), KeptLog()
    try:
        runtime._prepare(command, launcher, log)
    except GpuhookError as error:
        return error
    except OSError as error:
        where = error.filename or error.filename2 or "the host"
        return fault("GH1490", where=where, reason=error.strerror or str(error))
    return None


def _no_driver() -> Node:
    raise AssertionError("this node has specs")


def _explained(bundle: Path) -> simulate.SimulatedAnswer:
    chosen = settings_file.of_node()
    base = node_context.this_node(chosen, None, _no_driver)
    return simulate.simulate(explain_inputs.bundle_question(str(bundle)), base)


@given(config=CONFIG, image=IMAGE, chosen=SETTINGS, is_twice=st.booleans())
@examples(max_examples=depth(12, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_explain_predicts_the_wrapper(
    node: Path, config: dict[str, Any], image: list[str], chosen: dict[str, Any], *, is_twice: bool
) -> None:
    _configure(node, chosen)
    bundle = node / "bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir()
    _create_image(bundle / "rootfs", image)
    path = bundle / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    if is_twice:
        assume(_create(node, bundle) is None)
    text, before = path.read_bytes(), _tree(bundle / "rootfs")

    explained = _explained(bundle)
    assert path.read_bytes() == text
    assert _tree(bundle / "rootfs") == before

    trouble = _create(node, bundle)
    event(trouble.code if trouble else explained.edited.route or "nothing")
    event(f"changes of the root: {min(len(explained.changes), 3)}")
    assert (explained.fault and (explained.fault.code, explained.fault.message)) == (
        trouble and (trouble.code, trouble.message)
    )
    assert explained.after == json.loads(path.read_text(encoding="utf-8"))
    if trouble is None:
        assert _predicted(explained, bundle / "rootfs") == _difference(
            before, _tree(bundle / "rootfs")
        )


KEYS = ["ociVersion", "process", "env", "Env", "Config", "config", "HostConfig", "hooks", "mounts"]
KEYS += ["linux", "devices", "annotations", "root", "path", "prestart", "args", "destination"]
KEYS += ["DeviceRequests", "Capabilities", "Count", "namespaces", "capabilities", "bounding"]
WORDS = [
    "NVIDIA_VISIBLE_DEVICES=0",
    "NVIDIA_VISIBLE_DEVICES",
    "/etc",
    "gpuhook-hook",
    "apply",
    "gpu",
]
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 99), st.sampled_from(WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)


@given(document=st.one_of(ANY, st.dictionaries(st.sampled_from(KEYS), ANY, min_size=1)))
@examples(max_examples=depth(12, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_document_is_explained_or_refused(node: Path, document: object) -> None:
    _configure(node, {})
    base = node_context.this_node(settings_file.of_node(), None, _no_driver)
    try:
        questions = explain_inputs.text_questions(json.dumps(document).encode(), "standard input")
    except GpuhookError:
        return
    explained = documents.explain_document(
        [simulate.simulate(one, base) for one in questions], base
    )
    list(explain_graph.lines(explained))
    list(explain_text.lines(explained))
