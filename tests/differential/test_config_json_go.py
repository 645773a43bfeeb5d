# SPDX-License-Identifier: Apache-2.0
"""gpuhook and Go's encoding/json, with which runc reads config.json, see one document."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import config_json, oci_spec
from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.registry import Registry
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson
from gpuhook.host.hot.settings import Settings
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import parse, policy
from tests.depth import depth
from tests.differential import config_documents
from tests.differential.go_programs import Answers, running
from tests.figures import Figures
from tests.plans import WORDS, PlainNode, planned

pytestmark = pytest.mark.thorough
ROUNDS = depth(2_000, 20_000, 1_000_000)


def _edits(number: int) -> dict[str, Any]:
    path = f"/dev/plain{number}"
    return {
        "env": [f"PLAIN_GIVEN={number}", "A=given"],
        "deviceNodes": [{"path": path, "type": "c", "major": 195, "minor": number}],
        "mounts": [{"hostPath": "/h", "containerPath": "/usr/lib/plain.so", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/hook", "args": ["hook"]}],
        "additionalGids": [44],
    }


SPEC: Any = {
    "cdiVersion": "0.7.0",
    "kind": "example.com/gpu",
    "devices": [{"name": str(n), "containerEdits": _edits(n)} for n in (0, 1)]
    + [{"name": "all", "containerEdits": _edits(0)}],
}


@pytest.fixture(scope="module")
def context() -> PlanContext:
    """Return the context of a node with the devices 0 and 1."""
    compiled = compiled_spec.of_spec("/etc/cdi/x.json", SPEC)
    node = PlainNode(Registry(["/etc/cdi"], [[compiled]]))
    return PlanContext(Settings(), node, KeptLog())


@pytest.fixture(scope="module")
def go() -> Iterator[Answers]:
    """Yield a Go program that reads documents as runc does."""
    with running("oci_config") as answers:
        yield answers


def seen_by_go(go: Answers, document: bytes) -> tuple[Any, bytes]:
    """Return the runtime spec of a document, None for an error, and the text of its value."""
    spec, whole = go.to(document, 2)
    return (None if spec.startswith(b"!") else json.loads(spec)), whole


def decided_on(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what gpuhook's decisions depend on."""
    mounts = fastjson.objects(spec, "mounts")
    places = [(one.get("destination") or "", one.get("source") or "") for one in mounts]
    return {
        "env": parse.environment(spec),
        "privileged": policy.privileged(spec),
        "owner": oci_spec.owner(spec),
        "user namespace": oci_spec.user_namespace(spec),
        "devices": [path for path in oci_spec.device_paths(spec) if path not in ("", "None")],
        "groups": [gid or 0 for gid in oci_spec.groups(spec)],
        "mounts": [place for place in places if any(place)],  # Go makes one of null
        "sources": [(one.kind, one.names) for one in parse.sources(spec, WORDS, ["cdi.k8s.io/"])],
        "hooks": len(hook_args.hooks_in(spec)),
    }


def as_go_reads(value: Any) -> Any:
    """Return a value with the replacement character for each byte and half that is not Unicode."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in value)
    if isinstance(value, dict):
        return {as_go_reads(key): as_go_reads(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_go_reads, value))
    return value


class Comparison:
    """One document, as gpuhook and Go see it before and after gpuhook's edit."""

    def __init__(self, go: Answers, context: PlanContext) -> None:
        self._go, self._context = go, context
        self.counts: Counter[str] = Counter()

    def compare(self, raw: bytes) -> None:
        """Count the outcome of a document; AssertionError where two readers differ."""
        spec, whole = seen_by_go(self._go, raw)
        self.counts["documents"] += 1
        self.counts["refused by Go"] += spec is None
        try:
            ours = config_json.parsed("config.json", raw)
        except GpuhookError as error:
            if error.code != "GH1301":
                raise
            self.counts["refused by gpuhook"] += 1
            return
        self._compare_values(raw, ours, whole)
        try:
            injection = planned(ours, self._context)
        except AssertionError:
            self.counts["without a request"] += 1
            return
        except GpuhookError:
            self.counts["refused by gpuhook"] += 1
            return
        self.counts["edited"] += 1
        self._compare_edited(raw, ours, spec, injection.edits)

    def _compare_values(self, raw: bytes, ours: Any, whole: Any) -> None:
        """Go reads all that it has read in the document also in what gpuhook writes of it."""
        if whole.startswith(b"!") or ours.repeated:
            return
        again = fastjson.dumps(ours, ours.raw)
        assert seen_by_go(self._go, again)[1] == whole, raw

    def _compare_edited(self, raw: bytes, ours: Any, spec: Any, edits: Any) -> None:
        if spec is not None:
            assert decided_on(spec) == as_go_reads(decided_on(ours)), raw
            source = planned(copy.deepcopy(spec), self._context)
            assert source.edits == edits
        oci_spec.apply(ours, edits)
        edited = seen_by_go(self._go, fastjson.dumps(ours, ours.raw))[0]
        if spec is None:
            self.counts["refused by Go before the edit, which replaced the fault"] += (
                edited is not None
            )
            return
        self.counts["edited and accepted by Go"] += 1
        oci_spec.apply(spec, edits)
        expected = seen_by_go(self._go, fastjson.dumps(spec))[0]
        assert edited == expected, raw


@pytest.mark.soak
def test_go_sees_the_same_document_and_the_edit(
    go: Answers, context: PlanContext, figures: Figures
) -> None:
    """Where gpuhook edits config.json, Go reads it as gpuhook does, before and after."""
    random = Random(20)
    comparison = Comparison(go, context)
    for _ in range(ROUNDS):
        comparison.compare(config_documents.document(random))
    counts = comparison.counts
    assert counts["edited and accepted by Go"] > ROUNDS / 20, counts
    for what, count in counts.items():
        figures.record(f"config.json, gpuhook and Go: {what}", str(count))
