# SPDX-License-Identifier: Apache-2.0
"""RuntimeClasses of pods and the handlers of the engines in a tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.explain.pods.scheduling.cri_handlers import cri_handlers
from tests.unit.pod_texts import read

CONTAINERD = "/etc/containerd/config.toml"
CRIO = "/etc/crio/crio.conf.d/10-x.conf"
OF_2 = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes'
CLASS = "kind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: fast\n---\n"
POD = "kind: Pod\nspec: {runtimeClassName: nvidia, containers: [{name: c}]}\n"
PLAIN = f"version = 2\n{OF_2}.runc]\n"
NVIDIA = f"{PLAIN}{OF_2}.nvidia]\n"
FAST = '[crio.runtime.runtimes.fast]\nruntime_path = "/x"\n'


def objections(root: Path, manifest: str) -> list[tuple[str, str]]:
    """Return (result, message) of the objections to the handlers of the tree."""
    handlers = cri_handlers(str(root))
    asked = [handlers.objection(one) for one in read(manifest)] if handlers else []
    return [(one.result, one.said) for one in asked if one]


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


@pytest.mark.parametrize(
    ("files", "manifest", "result"),
    [
        ({CONTAINERD: PLAIN}, POD, "warning"),
        ({CONTAINERD: PLAIN}, CLASS + POD, "refused"),
        ({CONTAINERD: NVIDIA}, POD, ""),
        ({CONTAINERD: NVIDIA}, CLASS + POD, "refused"),
        ({CRIO: ""}, POD, "warning"),
        ({CRIO: FAST}, CLASS + POD, ""),
        ({CONTAINERD: PLAIN, CRIO: FAST}, CLASS + POD, ""),  # the kubelet uses one of them
        ({}, CLASS + POD, ""),  # no engine
        ({CONTAINERD: 'disabled_plugins = ["cri"]'}, CLASS + POD, ""),  # Docker's containerd
        ({CONTAINERD: "version = ["}, CLASS + POD, ""),  # not readable
        ({CONTAINERD: PLAIN}, POD.replace("runtimeClassName: nvidia, ", ""), ""),
        ({CONTAINERD: f'imports = ["/x/*.toml"]\n{PLAIN}', "/x/a.toml": NVIDIA}, POD, ""),
    ],
)
def test_handlers(files: dict[str, str], manifest: str, result: str, tmp_path: Path) -> None:
    write(tmp_path, files)
    assert [one for one, _ in objections(tmp_path, manifest)] == ([result] if result else [])


def test_message_of_the_engine(tmp_path: Path) -> None:
    write(tmp_path, {CONTAINERD: PLAIN})
    ((_, said),) = objections(tmp_path, CLASS + POD)
    assert said.endswith('failed to get sandbox runtime: no runtime for "fast" is configured')
    handlers = cri_handlers(str(tmp_path))
    (asked,) = read(POD)
    assert handlers is not None
    objection = handlers.objection(asked)
    assert objection is not None
    assert objection.said.endswith("unless RuntimeClass nvidia names another handler")
    assert "gpuhook configure containerd" in objection.instead


def test_fifo_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "etc/containerd").mkdir(parents=True)
    os.mkfifo(tmp_path / "etc/containerd/config.toml")
    assert cri_handlers(str(tmp_path)) is None
