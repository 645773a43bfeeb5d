# SPDX-License-Identifier: Apache-2.0
"""The record of gpuhook's changes in a config.json, so that a later create can undo them.

The second create of a bundle finds the env `void` and the edits of the first. The record restores
the original config.json, which is then resolved again: nothing is in it twice, and nothing of an
older driver remains.

The record is a property of config.json itself, next to `process` and `mounts`. Runtimes must ignore
unknown properties (OCI runtime-spec, config.md, "Extensibility"). Engines take the variables,
annotations and mounts of a container from its image and its user, but no property at the top of
config.json. So its presence proves that gpuhook-runtime edited the file. An annotation would not
prove that: CRI-O copies all annotations of a pod, Docker and podman those of the command line.
"""

from __future__ import annotations

from gpuhook.apply.spec import oci_spec
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits

KEY = "io.gpuhook.record"


def take_back(spec: dict[str, Any]) -> bool:
    """Restore what an earlier create changed in `spec`; returns whether there was a record."""
    if KEY not in spec:
        return False
    from gpuhook.apply.spec import spec_undo  # bundles are seldom created twice

    spec_undo.undo(spec, spec.pop(KEY))
    return True


def mounts(spec: dict[str, Any]) -> list[str]:
    """Return the destinations of the mounts that the record names."""
    return fastjson.strings(spec, KEY, "mounts")


def write(spec: dict[str, Any], before: dict[str, Any], edits: ContainerEdits) -> None:
    """Record in `spec` the changes of `edits`; `before` is the result of `survey` before them."""
    rules = oci_spec.device_rules(spec)
    spec[KEY] = {
        "env": [
            [entry, before["env"].get(entry.partition("=")[0])] for entry in edits.get("env") or ()
        ],
        "devices": [node["path"] for node in edits.get("deviceNodes") or ()],
        "mounts": [mount["containerPath"] for mount in edits.get("mounts") or ()],
        "rules": [rule for rule in rules if rule not in before["rules"]],
    }
    groups = [gid for gid in oci_spec.groups(spec) if gid not in before["groups"]]
    if groups:
        spec[KEY]["groups"] = groups


def survey(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what `write` needs of a spec before it is changed."""
    return {
        "env": {e.partition("=")[0]: e for e in fastjson.strings(spec, "process", "env")},
        "rules": list(oci_spec.device_rules(spec)),
        "groups": list(oci_spec.groups(spec)),
    }
