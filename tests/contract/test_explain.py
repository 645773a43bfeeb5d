# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain` compared with the edits of the installed gpuhook-runtime."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.limiting import apply_cdi_spec
from tests.contract.live import WAIT, sleeping, wrapped
from tests.contract.runtimes import lifecycle


def explain(installation: Installation, *words: str) -> dict[str, Any]:
    """Return the document that explain prints."""
    result = installation.gpuhook("explain", *words, "-o", "json")
    return result.document("explain")


def json_lines(config: dict[str, Any]) -> list[str]:
    return json.dumps(config, indent=2).splitlines()


def diff_lines(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the lines of a unified diff without its header."""
    return list(difflib.unified_diff(json_lines(before), json_lines(after), lineterm=""))[2:]


CASES = {
    "one": asks("0"),
    "all of them and of the driver": asks("all", "all"),
    "a replica and another": asks("3::1,GPU-0"),
    "the files": asks("none", "utility"),
    "nothing": ["PATH=/bin"],
    "void": asks("void"),
    "what is not there": asks("99"),
    "no capability": asks("0", "flying"),
}


@pytest.mark.parametrize("case", CASES)
def test_diff_equals_the_edits_of_a_create(
    case: str, node8: Installation, bundle_of: Bundles
) -> None:
    """explain --diff prints the edits of a first and of a second create, and the same error."""
    bundle = bundle_of("distroless", ["/probe"], CASES[case])
    for _ in range(2):
        before = bundle.config()
        explained = node8.gpuhook("explain", str(bundle.path), "--diff")
        (container,) = explain(node8, str(bundle.path))["containers"]
        created = node8.edit(bundle)
        assert (explained.rc == 0) == (created.rc == 0)
        assert explained.stdout.splitlines()[2:] == diff_lines(before, bundle.config())
        assert created.rc == 0 or container["fault"]["code"] in created.stderr


def test_each_device_has_its_line_of_the_spec(node8: Installation) -> None:
    uuid = str(node8.gpu(2).uuid)
    document = explain(node8, "--env", f"NVIDIA_VISIBLE_DEVICES=1,{uuid}")
    assert document["node"]["by"] == "specs"
    assert document["node"]["driver"] == node8.node.node.driver.version
    lines = node8.spec.read_text(encoding="utf-8").splitlines()
    for one in document["containers"][0]["devices"]:
        assert one["spec"] == str(node8.spec)
        name = one["device"].partition("=")[2]
        assert name in lines[one["line"] - 1]


def test_node_without_specs_is_read_by_nvml(node8: Installation, tmp_path: Path) -> None:
    """A child process reads NVML; nothing is written, not even to the state directory."""
    bare = node8.apart(tmp_path / "bare")
    bare.spec.unlink()
    for path in sorted(bare.state.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    document = explain(bare, *bare.node.options, "--env", "NVIDIA_VISIBLE_DEVICES=0")
    assert document["node"]["by"] == "live"
    assert document["containers"][0]["result"] == "gets"
    assert list(bare.state.rglob("*")) == []


def test_running_container_is_explained_by_its_request(
    node8: Installation, bundle_of: Bundles
) -> None:
    bundle = bundle_of("musl", WAIT, asks("0"))
    with wrapped(bundle, node8) as live:
        document = explain(node8, live.id, *live.roots)
        (container,) = document["containers"]
    assert container["kind"] == "container"
    assert container["result"] == "gets"
    assert container["sources"][0]["names"] == ["0"]
    assert container["changes"]["nodes"] == []  # it has them


def test_void_of_nvidias_runtime_is_not_the_request(
    node8: Installation, bundle_of: Bundles
) -> None:
    """NVIDIA's runtime appends `void` to the variables: the entry before it is the request."""
    env = [*asks("1"), "NVIDIA_VISIBLE_DEVICES=void"]
    bundle = bundle_of("musl", WAIT, env)
    with wrapped(bundle, node8) as live:
        document = explain(node8, live.id, *live.roots)
        (container,) = document["containers"]
    assert container["sources"][0]["names"] == ["1"]
    assert any("NVIDIA_VISIBLE_DEVICES=1" in note for note in container["notes"])


@pytest.mark.parametrize("hooks", [True, False], ids=["hooks", "no hooks"])
def test_container_with_edits_of_its_engine_is_explained(
    hooks: bool, apart: Installation, tmp_path: Path
) -> None:
    """If the engine applied a CDI spec, explain lists what the container has."""
    uuid = str(apart.gpu(2).uuid)
    made = sleeping(tmp_path, env=[f"GPUHOOK_REPLICAS={uuid}::3"])
    config = apply_cdi_spec(apart, made, uuid).config()
    if not hooks:
        del config["hooks"]
    made.write(config)
    with lifecycle(made, ["runc"], container_id="gpuhook-test-by-engine") as container:
        assert container.create().rc == 0
        roots = ("--state-root", str(made.path / "state"))
        (explanation,) = explain(apart, container.id, *roots)["containers"]
        text = apart.gpuhook("explain", container.id, *roots).stdout
    assert (explanation["result"], [one["gpu"] for one in explanation["gpus"]]) == ("gets", [uuid])
    assert explanation["replicas"] == [f"{uuid}::3"]
    assert explanation["route"]["name"] == ("cdi+wrapper" if hooks else "cdi")
    model = apart.gpu(2).name
    assert f"Answer: it gets GPU 2 ({model}), by the engine's CDI, " in text
