# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra lint`: the objections to the claims, classes and pods of several files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpuhook.errors import fault
from gpuhook.explain.claims import claim_manifests
from gpuhook.explain.claims.rules.claim_rules import claim_objections
from gpuhook.explain.claims.rules.pod_claim_rules import pod_claim_objections
from gpuhook.explain.pods.pod_requests import WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.explain.claims.claim_objects import ClassObject
    from gpuhook.explain.pods.pod_requests import Objection

SCHEMA = "gpuhook/dra-lint/v1"


@dataclass(frozen=True, slots=True)
class LintReport:
    """The objections by the title of the object, and the number of objects of the files."""

    files: tuple[str, ...]
    objections: tuple[tuple[str, Objection], ...]
    objects: int

    @property
    def is_valid(self) -> bool:
        """Whether no object is refused, and no pod waits forever."""
        return all(one.result == WARNING for _, one in self.objections)

    def document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "files": list(self.files),
            "objects": self.objects,
            "valid": self.is_valid,
            "objections": [{"object": title, **asdict(one)} for title, one in self.objections],
        }

    def lines(self) -> Iterator[str]:
        for title, one in self.objections:
            yield f"{one.where}: {title}: {one.result} by the {one.by}: {one.said}"
            yield f"  write instead: {one.instead}"
        if self.is_valid:
            yield f"{', '.join(self.files)}: valid"


def lint(texts: Sequence[tuple[str, str]], further: Sequence[ClassObject] = ()) -> LintReport:
    """Return the report on files, (path, text); `further` are classes of the cluster.

    Raises GH1930 for a file that is not YAML or JSON, and GH2631 for one without such objects.
    """
    manifests = [claim_manifests.read(text, path) for path, text in texts]
    for (path, _), one in zip(texts, manifests, strict=True):
        if not one.objects and not one.pods:
            raise fault("GH2631", path=path, kinds=", ".join(one.kinds[:5]) or "no object")
    found = list(claim_objections(manifests, further))
    together = claim_manifests.together(manifests)
    for manifest in manifests:
        for pod in manifest.pods:
            found += [(pod.workload, one) for one in pod_claim_objections(pod, together)]
    number = sum(len(one.objects) + len(one.pods) for one in manifests)
    paths = tuple(path for path, _ in texts)
    ordered = sorted(dict.fromkeys(found), key=lambda pair: _place(pair[1].where, paths))
    return LintReport(paths, tuple(ordered), number)


def _place(where: str, paths: Sequence[str]) -> tuple[int, int]:
    """Return the file and the line of "claim.yaml:14" as numbers."""
    path, _, line = where.rpartition(":")
    return (paths.index(path), int(line)) if path in paths else (len(paths), 0)
