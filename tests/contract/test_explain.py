# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain` beside what gpuhook-runtime, as it is installed, writes."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks
from tests.contract.limiting import given_by_engine
from tests.contract.live import WAIT, sleeping, wrapped
from tests.contract.runtimes import lifecycle


def told(installation: Installation, *words: str) -> dict[str, Any]:
    """Return the document of one container."""
    done = installation.gpuhook("explain", *words, "-o", "json")
    return done.document("explain")


def pretty(config: dict[str, Any]) -> list[str]:
    return json.dumps(config, indent=2).splitlines()


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the lines of a unified diff below its head."""
    return list(difflib.unified_diff(pretty(before), pretty(after), lineterm=""))[2:]


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
def test_the_difference_is_what_a_create_makes(
    case: str, node8: Installation, bundle_of: Bundles
) -> None:
    """Once for the bundle as it comes, and once for one that was created before."""
    bundle = bundle_of("distroless", ["/probe"], CASES[case])
    for _ in range(2):
        before = bundle.config()
        explained = node8.gpuhook("explain", str(bundle.path), "--diff")
        (container,) = told(node8, str(bundle.path))["containers"]
        done = node8.edit(bundle)
        assert (explained.rc == 0) == (done.rc == 0)
        assert explained.stdout.splitlines()[2:] == difference(before, bundle.config())
        assert done.rc == 0 or container["fault"]["code"] in done.stderr


def test_each_device_has_its_line_in_the_spec(node8: Installation) -> None:
    uuid = str(node8.gpu(2).uuid)
    document = told(node8, "--env", f"NVIDIA_VISIBLE_DEVICES=1,{uuid}")
    assert document["node"]["by"] == "specs"
    assert document["node"]["driver"] == node8.node.node.driver.version
    lines = node8.spec.read_text(encoding="utf-8").splitlines()
    for one in document["containers"][0]["devices"]:
        assert one["spec"] == str(node8.spec)
        name = one["device"].partition("=")[2]
        assert name in lines[one["line"] - 1]


def test_a_node_without_specs_is_asked(node8: Installation, tmp_path: Path) -> None:
    """By NVML, in a child process; nothing is written, not even to the state directory."""
    bare = node8.apart(tmp_path / "bare")
    bare.spec.unlink()
    for path in sorted(bare.state.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    document = told(bare, *bare.node.options, "--env", "NVIDIA_VISIBLE_DEVICES=0")
    assert document["node"]["by"] == "live"
    assert document["containers"][0]["result"] == "gets"
    assert list(bare.state.rglob("*")) == []


def test_a_running_container_is_told_of_as_it_asked(
    node8: Installation, bundle_of: Bundles
) -> None:
    bundle = bundle_of("musl", WAIT, asks("0"))
    with wrapped(bundle, node8) as live:
        document = told(node8, live.id, *live.roots)
        (found,) = document["containers"]
    assert found["kind"] == "container"
    assert found["result"] == "gets"
    assert found["sources"][0]["names"] == ["0"]
    assert found["changes"]["nodes"] == []  # it has them


def test_what_nvidias_runtime_wrote_is_not_what_was_asked(
    node8: Installation, bundle_of: Bundles
) -> None:
    """It appends void to the variable: of a running container the entry before that counts."""
    env = [*asks("1"), "NVIDIA_VISIBLE_DEVICES=void"]
    bundle = bundle_of("musl", WAIT, env)
    with wrapped(bundle, node8) as live:
        document = told(node8, live.id, *live.roots)
        (found,) = document["containers"]
    assert found["sources"][0]["names"] == ["1"]
    assert any("NVIDIA_VISIBLE_DEVICES=1" in note for note in found["notes"])


@pytest.mark.parametrize("hooks", [True, False], ids=["hooks", "no hooks"])
def test_a_container_that_its_engine_gave_a_gpu(
    hooks: bool, apart: Installation, tmp_path: Path
) -> None:
    """Its engine applied a CDI spec, with or without hooks: the answer is what it has."""
    uuid = str(apart.gpu(2).uuid)
    made = sleeping(tmp_path, env=[f"GPUHOOK_REPLICAS={uuid}::3"])
    config = given_by_engine(apart, made, uuid).config()
    if not hooks:
        del config["hooks"]
    made.write(config)
    with lifecycle(made, ["runc"], container_id="gpuhook-test-by-engine") as container:
        assert container.create().rc == 0
        roots = ("--state-root", str(made.path / "state"))
        (found,) = told(apart, container.id, *roots)["containers"]
        text = apart.gpuhook("explain", container.id, *roots).stdout
    assert (found["result"], [one["gpu"] for one in found["gpus"]]) == ("gets", [uuid])
    assert found["replicas"] == [f"{uuid}::3"]
    assert found["route"]["name"] == ("cdi+wrapper" if hooks else "cdi")
    model = apart.gpu(2).name
    assert f"Answer: it gets GPU 2 ({model}), by the engine's CDI, " in text
