# SPDX-License-Identifier: Apache-2.0
"""The origin of a container's annotations, and which of them are a grant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import fastjson, settings
from gpuhook.request import annotation_origin, parse
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from tests import cri_annotations as written

X, Y = "cdi.k8s.io/x", "cdi.k8s.io/y"
CRIO = annotation_origin.CRIO


@pytest.mark.parametrize(
    ("held", "origin"),
    [
        (written.crio({X: "a"}), annotation_origin.BY_POD),
        (written.crio({}, {X: "a"}), annotation_origin.BY_KUBELET),
        (
            written.crio({X: "b"}, {X: "a"}),
            annotation_origin.BY_KUBELET,
        ),  # CRI-O writes the kubelet's
        ({**written.crio({}, {X: "a"}), X: "b"}, annotation_origin.BY_POD),
        (
            written.crio({annotation_origin.CONTAINERD: "container", X: "a"}),
            annotation_origin.BY_POD,
        ),
        (written.crio_sandbox({X: "a"}), annotation_origin.BY_POD),
        (written.containerd({X: "a"}), annotation_origin.BY_CONTAINERD),
        (written.containerd({X: "a"}, "sandbox"), annotation_origin.BY_POD),
        ({X: "a"}, annotation_origin.BY_CALLER),
        ({X: "a", "io.container.manager": "libpod"}, annotation_origin.BY_CALLER),
        *[
            ({X: "a", CRIO: text}, annotation_origin.BY_POD)
            for text in (7, None, "", "null", "[]", '{"cdi.k8s.io/x":', "\ud800", "[" * 9999)
        ],
        ({X: "a", CRIO: json.dumps({X: ["a"]})}, annotation_origin.BY_POD),
    ],
)
def test_origin_of_an_annotation(held: dict[str, Any], origin: str) -> None:
    assert annotation_origin.origins(held, [X]) == {X: origin}


@pytest.mark.parametrize(
    ("accept", "origins"),
    [
        (
            "auto",
            {
                annotation_origin.BY_KUBELET,
                annotation_origin.BY_CONTAINERD,
                annotation_origin.BY_CALLER,
            },
        ),
        ("kubelet", {annotation_origin.BY_KUBELET, annotation_origin.BY_CONTAINERD}),
        (
            "any",
            {
                annotation_origin.BY_KUBELET,
                annotation_origin.BY_CONTAINERD,
                annotation_origin.BY_CALLER,
                annotation_origin.BY_POD,
            },
        ),
    ],
)
def test_accepted_origins_are_a_grant(accept: str, origins: set[str]) -> None:
    every = {
        annotation_origin.BY_KUBELET,
        annotation_origin.BY_CONTAINERD,
        annotation_origin.BY_CALLER,
        annotation_origin.BY_POD,
    }
    assert {one for one in every if annotation_origin.is_grant(one, accept)} == origins


def test_granted_annotations_precede_mounts_and_others_follow() -> None:
    spec = {
        "annotations": written.crio({X: "nvidia.com/gpu=1"}, {Y: "nvidia.com/gpu=2"}),
        "mounts": [
            {"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/GPU-3"}
        ],
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=4"]},
    }
    found = parse.sources(spec, VOCABULARY, ["cdi.k8s.io/"])
    assert [(one.kind, one.names) for one in found] == [
        ("annotations", ["nvidia.com/gpu=2"]),
        ("mounts", ["GPU-3"]),
        ("pod-annotations", ["nvidia.com/gpu=1"]),
        ("env", ["4"]),
    ]
    assert [one.origin for one in found] == [
        annotation_origin.BY_KUBELET,
        "",
        annotation_origin.BY_POD,
        "",
    ]


def test_crios_annotations_are_read_once_and_only_for_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pod chooses their size and the number of keys."""
    read = []
    loads = fastjson.loads

    def counting(data: bytes) -> Any:
        read.append(data)
        return loads(data)

    monkeypatch.setattr(fastjson, "loads", counting)
    plain = written.crio({f"example.com/{number}": "x" for number in range(100)})
    assert parse.sources({"annotations": plain}, VOCABULARY, ["cdi.k8s.io/"]) == []
    assert read == []
    many = written.crio(
        {f"cdi.k8s.io/{number}": f"nvidia.com/gpu={number}" for number in range(99)}
    )
    (source,) = parse.sources({"annotations": many}, VOCABULARY, ["cdi.k8s.io/"])
    assert (source.kind, len(source.names), len(read)) == ("pod-annotations", 99, 1)


@pytest.mark.parametrize("accept", ["", "no", "Kubelet", "true"])
def test_unknown_setting_is_refused(accept: str) -> None:
    from gpuhook.node import settings_file

    assert settings_file.faults_of({"request": {"acceptAnnotations": accept}}) != []
    assert settings.Settings().accept_annotations == "auto"


def test_pod_of_a_container() -> None:
    """CRI-O copies containerd's keys from a pod, which cannot replace CRI-O's own."""
    forged = {
        "io.kubernetes.cri.sandbox-name": "victim",
        "io.kubernetes.cri.sandbox-namespace": "victim",
        "io.kubernetes.cri.container-name": "victim",
        "io.kubernetes.pod.name": "victim",
        "io.kubernetes.pod.namespace": "victim",
        "io.kubernetes.container.name": "victim",
    }
    named = {"pod": written.POD, "namespace": written.NAMESPACE, "container": written.CONTAINER}
    assert ledger.pod_of(written.crio(forged)) == named
    assert ledger.pod_of(written.containerd(forged)) == named
