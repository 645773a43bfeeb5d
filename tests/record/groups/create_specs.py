# SPDX-License-Identifier: Apache-2.0
"""All kinds of CDI specs, stale specs, all shapes of config.json, and the runtime's own command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.record import images
from tests.record.box import Box
from tests.record.groups.create_policies import settings
from tests.record.groups.create_requests import annotated, mount
from tests.record.groups.creation import Creation, devices

_EDITS = {
    "env": ["NET=eth0", "LIST=a,b"],
    "deviceNodes": [
        {"path": "/dev/null"},
        {"path": "/dev/net0", "hostPath": "/dev/zero", "permissions": "r", "fileMode": 384},
        {"path": "/dev/own", "type": "c", "major": 7, "minor": 3, "uid": 5, "gid": 6},
    ],
    "mounts": [
        {"hostPath": "/mnt/case", "containerPath": "/data", "options": ["ro", "bind"]},
        {"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs"},
    ],
    "hooks": [
        {"hookName": "createContainer", "path": "/bin/true", "args": ["true", "x"], "timeout": 3},
        {"hookName": "poststop", "path": "/bin/true", "env": ["A=B"]},
    ],
    "additionalGids": [44, 0, 44],
    "intelRdt": {"closID": "gold", "l3CacheSchema": "L3:0=f"},
    "netDevices": [{"hostInterfaceName": "eth0", "name": "net0"}],
}


def spec(edits: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a CDI spec of another vendor, with one device."""
    device = {"name": "eth0", "containerEdits": edits}
    return {"cdiVersion": "0.7.0", "kind": "example.com/net", "devices": [device], **more}


def _writes(files: dict[str, Any]) -> Callable[[Box], None]:
    """Return a function that writes these files below the spec directory."""
    return partial(_write, files)


def _write(files: dict[str, Any], box: Box) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        box.write(f"cdi/{name}", text)


# Without a spec and this, gpuhook looks for the driver of the machine itself.
_ROOT = {"GPUHOOK_DRIVER_ROOT": "/mnt/node/h100-nospec"}
_NET = annotated("example.com/net=eth0")


def _foreign(name: str, edits: dict[str, Any], **more: Any) -> Creation:
    """Return a container with a device of another vendor."""
    files = {"net.json": spec(edits, **more)}
    return Creation(f"spec-{name}", oci=_NET, before=_writes(files))


_SPECS = [_foreign(f"edit-{key}", {key: value}) for key, value in _EDITS.items()]
_SPECS += [
    _foreign("edits-all", _EDITS, cdiVersion="1.1.0"),
    _foreign("net-devices", {"netDevices": _EDITS["netDevices"]}, cdiVersion="1.1.0"),
    _foreign("edits-none", {}),
    _foreign("edits-of-spec", {"env": ["A=1"]}, containerEdits={"env": ["B=2"]}),
    _foreign("node-missing", {"deviceNodes": [{"path": "/dev/gone"}]}),
    _foreign("node-bad-type", {"deviceNodes": [{"path": "/dev/a", "type": "x"}]}),
    _foreign("node-fifo", {"deviceNodes": [{"path": "/dev/a", "type": "p"}]}),
    _foreign(
        "node-block", {"deviceNodes": [{"path": "/dev/b", "type": "b", "major": 8, "minor": 1}]}
    ),
    _foreign("node-relative", {"deviceNodes": [{"path": "dev/a"}]}),
    _foreign("mount-missing", {"mounts": [{"hostPath": "/nowhere", "containerPath": "/x"}]}),
    _foreign("mount-no-path", {"mounts": [{"hostPath": "/mnt"}]}),
    _foreign("hook-bad-name", {"hooks": [{"hookName": "before", "path": "/bin/true"}]}),
    _foreign("hook-no-path", {"hooks": [{"hookName": "prestart"}]}),
    _foreign("env-bad", {"env": ["NOVALUE"]}),
    _foreign("unknown-field", {"env": ["A=1"], "later": {"x": [1.50, 1e5]}}),
    _foreign("version-old", {"env": ["A=1"]}, cdiVersion="0.3.0"),
    _foreign("version-newer", {"env": ["A=1"]}, cdiVersion="9.9.9"),
    _foreign("version-none", {"env": ["A=1"]}, cdiVersion=""),
    _foreign("version-number", {"env": ["A=1"]}, cdiVersion=0.7),
    _foreign("kind-bad", {"env": ["A=1"]}, kind="net"),
    _foreign("annotations", {"env": ["A=1"]}, annotations={"a/b": "c"}),
    _foreign(
        "device-twice", {}, devices=[{"name": "eth0", "containerEdits": {"env": ["A=1"]}}] * 2
    ),
    Creation("spec-no-devices", oci=_NET, before=_writes({"net.json": spec({}, devices=[])})),
    Creation("spec-broken-json", oci=_NET, before=_writes({"net.json": '{"cdiVersion": '})),
    Creation("spec-broken-yaml", oci=_NET, before=_writes({"net.yaml": "a: [\n"})),
    Creation("spec-list", oci=_NET, before=_writes({"net.json": "[]"})),
    Creation("spec-empty-file", oci=_NET, before=_writes({"net.yaml": ""})),
    Creation("spec-other-suffix", oci=_NET, before=_writes({"net.yml": spec({"env": ["A=1"]})})),
    Creation(
        "spec-yaml",
        oci=_NET,
        before=_writes(
            {
                "net.yaml": "cdiVersion: 0.6.0\nkind: example.com/net\ndevices:\n- name: eth0\n"
                "  containerEdits:\n    env: [A=yes, 'B=0777', C=1.0]\n"
            }
        ),
    ),
    Creation(
        "spec-two-files",
        oci=_NET,
        before=_writes({"a.json": spec({"env": ["A=1"]}), "b.json": spec({"env": ["A=2"]})}),
    ),
    Creation("spec-broken-beside", devices("0"), before=_writes({"net.json": "{"})),
    Creation(
        "spec-two-kinds",
        oci=annotated("nvidia.com/gpu=1,example.com/net=eth0"),
        before=_writes({"net.json": spec({"env": ["A=1"]})}),
    ),
    Creation(
        "spec-env-vendor",
        devices("example.com/net=eth0"),
        before=_writes({"net.json": spec({"env": ["A=1"]})}),
    ),
    Creation(
        "spec-default-kind",
        devices("eth0"),
        variables={"GPUHOOK_CDI_DEFAULT_KIND": "example.com/net"},
        before=_writes({"net.json": spec({"env": ["A=1"]})}),
    ),
    Creation(
        "spec-directories",
        oci=_NET,
        variables={"GPUHOOK_CDI_SPEC_DIRS": "/mnt/case/cdi:/mnt/case/more"},
        before=_writes(
            {
                "net.json": spec({"env": ["A=low"]}),
                "../more/net.json": spec({"env": ["A=high"]}),
            }
        ),
    ),
    Creation("spec-none", devices("0"), scene="h100-nospec", variables=_ROOT),
    Creation("spec-none-all", devices("all"), scene="h100-nospec", variables=_ROOT),
    Creation(
        "spec-none-cdi",
        oci=annotated("nvidia.com/gpu=0"),
        scene="h100-nospec",
        variables=_ROOT,
    ),
    Creation("spec-hookless", devices("0"), scene="h100-hookless", root="debian"),
]


def _spec_file() -> Path:
    return Path("/mnt/case/cdi/nvidia.yaml")


def _another_boot(box: Box) -> None:
    Path(box.node, "proc/sys/kernel/random/boot_id").write_text("another\n", encoding="utf-8")


def _another_driver(box: Box) -> None:
    for path in ("sys/module/nvidia/version",):
        Path(box.node, path).write_text("590.10.01\n", encoding="utf-8")


def _no_driver(box: Box) -> None:
    for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        Path(box.node, path).unlink()


def _no_node(box: Box) -> None:
    Path(box.node, "dev/nvidia0").unlink()


def _wrong_node(box: Box) -> None:
    path = f"{box.node}/dev/nvidia0"
    os.unlink(path)
    images.node(path, 195, 100)


def _no_file(box: Box) -> None:
    next(Path(box.node).glob("usr/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.5*")).unlink()


_CHANGES = {
    "boot": _another_boot,
    "driver": _another_driver,
    "no-driver": _no_driver,
    "no-node": _no_node,
    "wrong-node": _wrong_node,
    "no-file": _no_file,
}
_REFUSE = {"GPUHOOK_CDI_ON_STALE": "refuse"}
_STALE = [
    Creation(
        f"stale-{change}-{mode}",
        devices("0"),
        before=before,
        is_altering=True,
        variables={"GPUHOOK_CDI_ON_STALE": mode},
    )
    for change, before in _CHANGES.items()
    for mode in ("refuse", "refresh")
]
_STALE += [
    Creation("stale-boot-all", devices("all"), before=_another_boot, is_altering=True),
    Creation("stale-no-driver-all", devices("all"), before=_no_driver, is_altering=True),
    Creation(
        "stale-no-driver-all-refused",
        devices("all"),
        before=_no_driver,
        is_altering=True,
        variables={"GPUHOOK_REQUEST_ON_MISSING_DRIVER": "refuse"},
    ),
    Creation("stale-no-driver-none", devices("none"), before=_no_driver, is_altering=True),
    Creation("stale-boot-no-request", before=_another_boot, is_altering=True),
    Creation("stale-boot-void", devices("void"), before=_another_boot, is_altering=True),
    Creation("empty-node-all", devices("all"), scene="empty"),
    Creation("empty-node-index", devices("0"), scene="empty"),
    Creation("empty-node-none", devices("none"), scene="empty"),
    Creation("empty-node-image", ("CUDA_VERSION=12.0",), scene="empty"),
    Creation("empty-node-annotation", oci=annotated("nvidia.com/gpu=0"), scene="empty"),
    Creation(
        "empty-node-refused",
        devices("all"),
        scene="empty",
        variables={"GPUHOOK_REQUEST_ON_MISSING_DRIVER": "refuse"},
    ),
]
_PLAIN = images.text([*devices("0")])
_SHAPES: dict[str, str | bytes] = {
    "indented": json.dumps(json.loads(_PLAIN), indent=2),
    "spaced": json.dumps(json.loads(_PLAIN)),
    "newline": _PLAIN + "\n",
    "space-before": "  \n" + _PLAIN,
    "unknown-fields": _PLAIN.replace(
        '{"ociVersion"', '{"x":{"y":[1,2,{"z":null}]},"ociVersion"', 1
    ),
    "big-integer": _PLAIN.replace('"cwd"', '"big":123456789012345678901234567890,"cwd"', 1),
    "huge-integer": _PLAIN.replace('"cwd"', f'"big":{"9" * 5000},"cwd"', 1),
    "float": _PLAIN.replace('"cwd"', '"f":1.50,"e":1E5,"n":-0,"m":-0.0,"cwd"', 1),
    "escapes": _PLAIN.replace('"cwd"', '"s":"\\u0041\\u00e9\\ud83d\\ude00\\/\\b","cwd"', 1),
    "lone-surrogate": _PLAIN.replace('"cwd"', '"s":"\\ud800","cwd"', 1),
    "unicode": _PLAIN.replace('"cwd"', '"s":"é😀","cwd"', 1),
    "not-utf-8": _PLAIN.encode().replace(b'"cwd"', b'"s":"\xff\xfe","cwd"', 1),
    "key-twice": _PLAIN.replace('"cwd"', '"cwd":"/a","cwd"', 1),
    "env-twice": _PLAIN.replace('"cwd"', '"env":["A=1"],"cwd"', 1),
    "key-other-case": _PLAIN.replace('"cwd"', '"Env":["NVIDIA_VISIBLE_DEVICES=all"],"cwd"', 1),
    "hooks-other-case": _PLAIN.replace('"linux"', '"Hooks":{},"linux"', 1),
    "bom": b"\xef\xbb\xbf" + _PLAIN.encode(),
    "utf-16": _PLAIN.encode("utf-16"),
    "truncated": _PLAIN[:-40],
    "more-behind": _PLAIN + " x",
    "empty": "",
    "list": '["NVIDIA_VISIBLE_DEVICES=0"]',
    "string": '"NVIDIA_VISIBLE_DEVICES=0"',
    "nan": _PLAIN.replace('"cwd"', '"n":NaN,"cwd"', 1),
    "deep": _PLAIN.replace('"cwd"', f'"d":{"[" * 3000}{"]" * 3000},"cwd"', 1),
    "null-in-string": _PLAIN.replace('"cwd"', '"s":"a\\u0000b","cwd"', 1),
    "broken-no-request": '{"process": ',
}
_TYPES: dict[str, dict[str, Any]] = {
    "process-list": {"process": []},
    "process-none": {"process": None},
    "env-object": {"process": {"env": {}}},
    "env-string": {"process": {"env": "A=B"}},
    "mounts-object": {"mounts": {}},
    "mounts-none": {"mounts": None},
    "linux-none": {"linux": None},
    "linux-list": {"linux": []},
    "resources-list": {"linux": {"resources": []}},
    "devices-object": {"linux": {"devices": {}}},
    "rules-none": {"linux": {"resources": {"devices": None}}},
    "hooks-list": {"hooks": []},
    "hooks-empty": {"hooks": {}},
    "hook-stage-object": {"hooks": {"createContainer": {}}},
    "root-none": {"root": None},
    "root-path-number": {"root": {"path": 5}},
    "root-relative": {"root": {"path": "../rootfs"}},
    "root-missing": {"root": {"path": "/nowhere"}},
    "root-readonly": {"root": {"readonly": True}},
    "user-other": {"process": {"user": {"uid": 1000, "gid": 1000, "additionalGids": [44]}}},
    "user-string": {"process": {"user": "root"}},
    "namespace-user": {
        "linux": {
            "namespaces": [{"type": "user"}, {"type": "mount"}],
            "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
            "gidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        }
    },
    "device-there": {
        "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 1}]}
    },
    "mount-there": {"mounts": [mount("/usr/bin/nvidia-smi", "/mnt/other")]},
    "mount-below-run": {
        "mounts": [{"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": []}]
    },
    "foreign-hook": {
        "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}, {"path": "/x"}]}
    },
    "own-hook": {
        "hooks": {
            "createContainer": [
                {"path": "/mnt/prefix/bin/gpuhook-hook", "args": ["gpuhook-hook", "apply"]}
            ]
        }
    },
    "own-hook-stale": {
        "hooks": {
            "createContainer": [
                {
                    "path": "/mnt/prefix/bin/gpuhook-hook",
                    "args": ["gpuhook-hook", "apply", "--fingerprint", "boot=x,driver=1"],
                }
            ]
        }
    },
    "own-hook-bad": {
        "hooks": {
            "createContainer": [
                {"path": "/mnt/prefix/bin/gpuhook-hook", "args": ["gpuhook-hook", "apply", "--x"]}
            ]
        }
    },
    "libcuda-dir": {"process": {"env": ["NVIDIA_CTK_LIBCUDA_DIR=/x", "NVIDIA_VISIBLE_DEVICES=0"]}},
    "record-forged": {"io.gpuhook.record": {"env": [["A=1", None]], "devices": ["/dev/null"]}},
    "record-odd": {"io.gpuhook.record": 5},
    "apparmor": {"process": {"apparmorProfile": "docker-default", "selinuxLabel": "x"}},
    "windows": {"windows": {"layerFolders": []}},
}
_JSON = [Creation(f"json-{name}", raw=raw) for name, raw in _SHAPES.items()]
_JSON += [Creation(f"part-{name}", devices("0"), oci) for name, oci in _TYPES.items()]
_JSON += [
    Creation("part-twice", devices("0"), times=2),
    Creation("part-twice-all", devices("all"), times=2, root="debian"),
    Creation("part-own-hook-no-request", oci=_TYPES["own-hook"]),
    Creation("part-own-hook-stale-no-request", oci=_TYPES["own-hook-stale"]),
    Creation("part-record-no-request", oci=_TYPES["record-forged"]),
]

_BUNDLE = ("--bundle", "/mnt/case/bundle")
_COMMANDS: dict[str, dict[str, Any]] = {
    "text-log": {"log_format": "text"},
    "text-log-refused": {"log_format": "text", "env": devices("9")},
    "run": {"words": ("run", *_BUNDLE)},
    "bundle-equals": {"words": ("create", "--bundle=/mnt/case/bundle")},
    "bundle-short": {"words": ("create", "-b", "/mnt/case/bundle")},
    "pid-file": {"words": ("create", "--pid-file", "/mnt/case/pid", *_BUNDLE)},
    "options-behind": {"words": ("create", "--no-pivot", *_BUNDLE, "--no-new-keyring")},
    "config": {"words": ("run", "--config", "/mnt/case/bundle/config.json", *_BUNDLE)},
    "config-missing": {"has_config": False},
    "bundle-missing": {"words": ("create", "--bundle", "/nowhere")},
    "start": {"words": ("start",)},
    "state": {"words": ("state",)},
    "delete": {"words": ("delete", "--force")},
    "exec": {"words": ("exec", "-t")},
    "no-root": {"before_command": ()},
    "systemd": {"before_command": ("--systemd-cgroup", "--root=/mnt/case/containers")},
    "debug": {"before_command": ("--debug", "--root", "/mnt/case/containers")},
    "low-missing": {"variables": {"GPUHOOK_LOW_LEVEL_RUNTIME": "/nowhere/runc"}},
    "low-missing-name": {"variables": {"GPUHOOK_LOW_LEVEL_RUNTIME": "no-such-runtime"}},
}


def _runtimes(box: Box) -> None:
    for name in ("low", "runc", "other"):
        box.write(f"/mnt/case/bin/{name}", f'#!/bin/sh\necho "{name}: $*"\n', 0o755)


_RUNTIME = [
    Creation(f"command-{name}", **{"env": devices("0"), **more}) for name, more in _COMMANDS.items()
]
_NAMED = {"GPUHOOK_LOW_LEVEL_RUNTIME": "", "PATH": "/mnt/case/bin:/usr/bin:/bin"}
_RUNTIME += [
    Creation("command-low-found", devices("0"), variables=_NAMED, before=_runtimes),
    Creation(
        "command-low-setting",
        devices("0"),
        variables=_NAMED,
        before=_runtimes,
        settings=settings(runtime={"lowLevelRuntimes": ["none-such", "other", "runc"]}),
    ),
    Creation(
        "command-low-state",
        variables=_NAMED,
        before=_runtimes,
        words=("state",),
    ),
    Creation(
        "command-low-none",
        devices("0"),
        variables={**_NAMED, "PATH": "/usr/bin:/bin"},
        settings=settings(runtime={"lowLevelRuntimes": ["/nowhere/a", "no-such-b"]}),
    ),
]
_LAYOUTS = [
    Creation(
        f"layout-{scene}",
        (*devices("all"), "NVIDIA_DRIVER_CAPABILITIES=all"),
        scene=scene,
        root=root,
    )
    for scene, root in {
        "t4": "debian",
        "t4-debian": "debian",
        "t4-lib64": "lib64",
        "t4-container": "distroless",
        "t4-gke": "musl",
    }.items()
]
_LAYOUTS += [
    Creation(f"root-{root}", devices("0"), root=root)
    for root in ("debian", "lib64", "musl", "distroless")
]
CASES = (*_SPECS, *_STALE, *_JSON, *_RUNTIME, *_LAYOUTS)
