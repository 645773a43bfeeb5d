# SPDX-License-Identifier: Apache-2.0
"""gpuhook and podman give a container the same edits of the same CDI spec, or refuse it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.errors import GpuhookError
from tests.contract import engines
from tests.differential.test_cdi_library import STRICTER, normal, registry_of

pytestmark = pytest.mark.thorough
KIND = "example.com/gpu"
EDITS = """\
    env: [A=1, "B=x=y", C=]
    deviceNodes:
    - {path: /dev/one, hostPath: /dev/zero, permissions: r}
    - {path: /dev/two, type: c, major: 1, minor: 3, fileMode: 438, uid: 0, gid: 5}
    mounts:
    - {hostPath: /usr, containerPath: /opt/usr, options: [ro, nosuid, bind]}
    hooks:
    - {hookName: createContainer, path: /bin/true, args: ["true", a], env: [X=1], timeout: 7}
"""
DEVICE = f"devices:\n- name: '0'\n  containerEdits:\n{EDITS}"
HEAD = f"cdiVersion: 0.5.0\nkind: {KIND}\n"
ENV = "devices: [{name: '0', containerEdits: {env: [A=1]}}]\n"
SPECS = {
    "whole": HEAD + DEVICE,
    "edits of the spec": HEAD + DEVICE + "containerEdits: {env: [A=2, D=4]}\n",
    "equal keys": HEAD + f"kind: other.com/gpu\n{ENV}",
    "equal keys of an edit": HEAD + "devices: [{name: '0', name: '1', containerEdits: {}}]\n",
    "alias": HEAD + "containerEdits: &e {env: [B=2]}\ndevices: [{name: '0', containerEdits: *e}]\n",
    "unknown field": HEAD + "color: red\n" + ENV,
    "unknown edit": HEAD + "devices: [{name: '0', containerEdits: {env: [A=1], colors: [1]}}]\n",
    "annotations": HEAD + "annotations: {a/b: c}\n" + ENV,
    "version too new": HEAD.replace("0.5.0", "99.0.0") + ENV,
    "version as number": HEAD.replace("0.5.0", "0.5") + ENV,
    "no version": HEAD.partition("\n")[2] + ENV,
    "no edit": HEAD + "devices: [{name: '0', containerEdits: {}}]\n",
    "name as number": HEAD + "devices: [{name: 0, containerEdits: {env: [A=1]}}]\n",
    "variable without name": HEAD + "devices: [{name: '0', containerEdits: {env: ['=1']}}]\n",
    "variable without value": HEAD + "devices: [{name: '0', containerEdits: {env: [A]}}]\n",
    "wrong stage": HEAD + DEVICE.replace("createContainer", "creation"),
    "relative hook": HEAD + DEVICE.replace("/bin/true", "true"),
    "mount without host path": HEAD + DEVICE.replace("hostPath: /usr, ", ""),
    "two devices of a name": HEAD + ENV[:-2] + ", " + ENV[10:],
    "JSON": json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": [{"name": "0", "containerEdits": {"env": ["A=\u00e9"]}}],
        }
    ),
    "capital keys": HEAD + ENV.replace("containerEdits", "ContainerEdits"),
}
CAPTURE = """#!/bin/sh
case " $* " in
*" create "*) ;;
*) exec {program} "$@" ;;
esac
for word do [ "$last" != --bundle ] || cp "$word/config.json" {copy}; last=$word; done
exit 1
"""


def by_podman(place: Path, *options: str) -> Any:
    """Return the config.json that podman gives a container, None if it refuses it."""
    copy, root = place / "config.json", place / "root"
    copy.unlink(missing_ok=True)
    (root / "opt").mkdir(parents=True, exist_ok=True)
    program = place / "runc"
    program.write_text(CAPTURE.format(program=shutil.which("runc"), copy=copy), encoding="utf-8")
    program.chmod(0o755)
    done = engines.podman(
        Path(mkdtemp(dir=place)), root, ["/x"], options, program, cdi=place / "cdi"
    )
    assert done.rc != 0
    if copy.exists():
        return json.loads(copy.read_text(encoding="utf-8"))
    assert KIND in done.stderr, done
    return None


def by_gpuhook(directory: Path, config: Any) -> str:
    """Apply the device's edits to a config.json; return why it is refused, or ""."""
    found = registry_of([str(directory)])
    try:
        for broken in found.broken:
            assert broken.error
            raise broken.error
        spec, edits = found.device(f"{KIND}=0")
        oci_spec.apply(config, merged([spec.edits, edits]))
    except GpuhookError as error:
        return error.message
    return ""


def comparable(config: Any, base: Any) -> dict[str, Any]:
    """Return what the device changed: podman's own files differ from container to container."""
    there = {one["destination"] for one in base["mounts"]}
    config["mounts"] = [one for one in config["mounts"] if one["destination"] not in there]
    found: dict[str, Any] = normal(config)
    for name in ("HOSTNAME", "HOME"):
        found["env"].pop(name, None)
    return found


def test_podman_sees_the_same_edits(tmp_path: Path) -> None:
    """gpuhook refuses what podman refuses, and more only where readers disagree."""
    (tmp_path / "cdi").mkdir()
    base = by_podman(tmp_path)
    wrong: dict[str, object] = {}
    equal = []
    for name, text in SPECS.items():
        (tmp_path / "cdi/spec.yaml").write_text(text, encoding="utf-8")
        theirs = by_podman(tmp_path, "--device", f"{KIND}=0")
        ours = json.loads(json.dumps(base))
        refused = by_gpuhook(tmp_path / "cdi", ours)
        if theirs is None and not refused:
            wrong[name] = "only podman refuses it"
        elif theirs is not None and refused and not STRICTER.search(refused):
            wrong[name] = refused
        elif theirs is not None and not refused:
            pair = comparable(ours, base), comparable(theirs, base)
            if pair[0] == pair[1]:
                equal.append(name)
            else:
                wrong[name] = pair
    assert wrong == {}
    assert len(equal) >= 5
