# SPDX-License-Identifier: Apache-2.0
"""The members of a bundle: the listed files that doctor read, other useful files, readings."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import gpuhook
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources import node_tree as trees
from gpuhook.support_bundle import allow_list, bundle_records
from gpuhook.support_bundle.bundle_reader import CONTENTS, MANIFEST, READINGS, SCHEMA, TREE
from gpuhook.support_bundle.recorded_tree import RecordingTree
from gpuhook.support_bundle.redaction import AllowList
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping

    from gpuhook.node_facts.sources.node_readings import Reading

# Files that support needs, whether a check read them or not.
_USEFUL = (
    "/etc/os-release",
    "/proc/version",
    "/proc/devices",
    "/proc/sys/kernel/random/boot_id",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/gpus/*/information",
    "/proc/driver/nvidia-caps/*",
    "/sys/module/nvidia*/version",
    "/etc/cdi/*",
    "/var/run/cdi/*",
    "/run/cdi/*",
    "/etc/gpuhook/*",
    "/etc/nvidia-container-runtime/config.toml",
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/*.toml",
    "/etc/docker/daemon.json",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d/*.conf",
    "/etc/containers/containers.conf",
    "/etc/modprobe.d/*nvidia*",
    # How gpuhook was configured, without the backups; and its versions.
    "/var/lib/gpuhook/configured/*/record.json",
    "/usr/lib/gpuhook/gpuhook/__init__.py",
    "/usr/lib/gpuhook/*/gpuhook/__init__.py",
    "/usr/local/lib/gpuhook/gpuhook/__init__.py",
    "/opt/gpuhook/versions/*/tree.json",
)
_AS_IT_IS = (node_readings.INVENTORY, node_readings.VENDORS)
_LARGEST = 4 << 20  # bytes of a file that are kept
_MOST_BYTES = 128 << 20  # of all files
_HOMES = ("/home/", "/root/")


@dataclass(slots=True)
class Bundle:
    """The members of a bundle.

    `kept` and `removed` have the number of keys by member, as {"where", "what", "count"};
    `left_out` has what is missing and the reason, as {"what", "why"}.
    """

    members: dict[str, bytes]
    kept: list[dict[str, Any]] = field(default_factory=list)
    removed: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    made: float = 0.0


def recording_node(node: ExaminedNode) -> ExaminedNode:
    """Return the node with a tree that records every answer."""
    return ExaminedNode(RecordingTree(node.tree), node.readings, node.driver_root, node.dev_root)


def collect(
    node: ExaminedNode,
    documents: Mapping[str, Any],
    texts: Mapping[str, str],
    left_out: Iterable[tuple[str, str]] = (),
) -> Bundle:
    """Return the bundle of a node from recording_node(), after doctor examined it.

    `documents` and `texts` are more members by name: results of commands, lines of logs. `left_out`
    has what is missing of those, and why.
    """
    tree = node.tree
    assert isinstance(tree, RecordingTree)  # noqa: S101 # from recording_node()
    missing = list(left_out)
    for name in allow_list.READINGS:
        taken = node.readings.of(name)
        if taken.document is None:
            missing.append((f"reading {name}", taken.trouble))
    _read_useful(tree, missing)
    allowed = AllowList()
    now = time.time()
    members = {
        READINGS: _json(
            {name: _reading(one, name, allowed) for name, one in node.readings.taken.items()}
        )
    }
    for name, document in documents.items():
        keys = allow_list.OF_DOCUMENTS.get(name, allow_list.DOCUMENTS)
        members[name] = _json(allowed.document(document, keys, name))
    members.update({name: text.encode("utf-8", "replace") for name, text in texts.items()})
    kept = _contents(tree.records, allowed, missing)
    members[TREE] = _json(bundle_records.document(_without_people(tree.records)))
    members.update({CONTENTS + path: content for path, content in kept.items()})
    bundle = Bundle(members, _counts(allowed.kept), _counts(allowed.removed), made=now)
    bundle.left_out = [{"what": what, "why": why} for what, why in missing]
    manifest = _json(_manifest(node, bundle))
    bundle.members = {MANIFEST: manifest, **members}
    return bundle


def _read_useful(tree: RecordingTree, missing: list[tuple[str, str]]) -> None:
    """Read the useful files, which adds them to the records."""
    for pattern in (*_USEFUL, *(path for one in vendors() for path in one.support_facts().files)):
        try:
            for path in trees.matching(tree, pattern):
                found = tree.status(path)
                if found is not None and found.is_file:
                    tree.read(path, _LARGEST)
        except OSError as error:
            missing.append((pattern, error.strerror or str(error)))


def _counts(found: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"where": where, "what": what, "count": count}
        for (where, what), count in sorted(found.items())
    ]


def _without_people(known: bundle_records.Records) -> bundle_records.Records:
    """Return the records without home directories, whose paths have user names."""

    def of_system(found: dict[str, Any]) -> dict[str, Any]:
        return {path: one for path, one in found.items() if not path.startswith(_HOMES)}

    return bundle_records.Records(
        contents=of_system(known.contents),
        names={**of_system(known.names), "/home": []},
        statuses=of_system(known.statuses),
        lstats=of_system(known.lstats),
        reals={
            path: None if real is None or real.startswith(_HOMES) else real
            for path, real in of_system(known.reals).items()
        },
        errors={key: code for key, code in known.errors.items() if not key[1].startswith(_HOMES)},
    )


def _contents(
    known: bundle_records.Records, allowed: AllowList, missing: list[tuple[str, str]]
) -> dict[str, bytes]:
    """Return the contents of listed files; a file that is too large is cut, and reported."""
    kept: dict[str, bytes] = {}
    left = _MOST_BYTES
    for path, content in sorted(known.contents.items()):
        if content is None:
            continue
        if len(content) > min(_LARGEST, left):
            missing.append((path, f"cut: it has {len(content)} bytes"))
            content = content[: min(_LARGEST, left)]
        left_over = allowed.content(path, content, CONTENTS + path)
        if left_over is None:
            if not path.startswith(_HOMES):
                missing.append((path, "it is not in the list of files that are kept"))
            continue
        left -= len(content)
        kept[path] = left_over
    return kept


def _reading(taken: Reading, name: str, allowed: AllowList) -> dict[str, Any]:
    where = f"{READINGS}: {name}"
    document = taken.document
    if name not in _AS_IT_IS:
        document = allowed.document({name: document}, allow_list.READINGS[name], where)[name]
    if name == node_readings.CONTAINERD and taken.document is not None:
        config = str(taken.document.get("config", ""))
        document["config"] = allowed.text(config, allow_list.CONTAINERD, where)
    texts = {"trouble": taken.trouble, "code": taken.code, "hint": taken.hint}
    return {"document": document, **allowed.document(texts, frozenset(texts), where)}


def _manifest(node: ExaminedNode, bundle: Bundle) -> dict[str, Any]:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(bundle.made))
    return {
        "schema": SCHEMA,
        "made": made,
        "gpuhook": gpuhook.__version__,
        "driver_root": node.driver_root,
        "dev_root": node.dev_root,
        "members": sorted(bundle.members),
        "removed": bundle.removed,
        "left_out": bundle.left_out,
    }


def _json(value: Any) -> bytes:
    # Without an indent: only then the encoder is the one in C, which takes a tenth of the time.
    return (json.dumps(value) + "\n").encode()
