# SPDX-License-Identifier: Apache-2.0
"""Which annotations of a pod containerd copies to its containers: none that requests a GPU."""

from __future__ import annotations

from gpuhook.doctor.check import ENGINES, WARNING, Check, Finding, absent
from gpuhook.doctor.engine_findings import all_is_well, gpu_runtimes
from gpuhook.doctor.facts.engine_facts import containerds
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.containerd_config import covers
from gpuhook.request.annotation_origin import CRIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.engine_facts import ContainerdHere
    from gpuhook.engines.read.engine_config import Runtime

_KEY = "pod_annotations"
# What a pod that may write a key can do.
_MEANINGS = {
    "cdi.k8s.io/": "a pod can request any CDI device of this node by an annotation, whatever the"
    " device plugin assigns it: gpuhook-runtime cannot tell it from an annotation of the kubelet",
    CRIO: "a pod can pass as a container of CRI-O: `gpuhook ps` then shows the pod's own"
    " annotations as the name of the pod",
}


def pod_annotations(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether pods of GPU runtimes can write annotations that gpuhook trusts."""
    here = containerds(node)
    for one in here:
        found = [
            finding
            for run in gpu_runtimes(node.tree, one.read.configuration)
            for finding in _of_runtime(one, run)
        ]
        said = f"no GPU runtime of {one.root} copies annotations of pods that gpuhook trusts"
        yield from all_is_well(found, said, *one.read.configuration.files)
    if not here:
        yield absent("containerd is not installed")


def _of_runtime(one: ContainerdHere, run: Runtime) -> Iterator[Finding]:
    patterns = toml_document.texts(run.options.get(_KEY))
    covering = [part for part in patterns if any(covers(part, key) for key in _MEANINGS)]
    if not covering:
        return
    means = [
        meaning for key, meaning in _MEANINGS.items() if any(covers(part, key) for part in covering)
    ]
    edit = f"vi +{run.where.line or 1} {run.where.path} && {one.distribution.restart}"
    yield Finding(
        WARNING,
        f'runtime "{run.name}" ({run.where}) has {_KEY} = [{", ".join(map(_quoted, covering))}]',
        subject=run.name,
        meaning="; ".join(means),
        command=f"{edit} # remove these patterns",
        looked_at=one.read.configuration.files,
    )


def _quoted(pattern: str) -> str:
    return f'"{pattern}"'


CHECKS = (
    Check(
        "containerd.pod-annotations",
        ENGINES,
        "Pods cannot write annotations that assign GPUs",
        pod_annotations,
        ("containerd.runtime",),
    ),
)
