# SPDX-License-Identifier: Apache-2.0
"""The plan of a container: one function of a config.json, settings and a node."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi.hot import registry
from gpuhook.entry.plan_context import PlanContext, plan_logged, source_logged, with_fresh_specs
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot.settings import Settings
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import plan
from gpuhook.vendors.nvidia.hot import vocabulary
from tests.plans import WORDS, PlainNode, chosen, described, this_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KIND = WORDS.default_kind


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    """Give a node of a vendor whose two devices have a node each, and numbers as names."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    devices = [
        {"name": str(n), "containerEdits": {"deviceNodes": [{"path": f"/dev/plain{n}"}]}}
        for n in range(2)
    ]
    document = {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices}
    (tmp_path / "plain.json").write_text(json.dumps(document), encoding="utf-8")
    return PlainNode(registry.load([str(tmp_path)], lambda *_: None))


def asking(value: str, *more: str) -> dict[str, Any]:
    return {"process": {"env": [f"{WORDS.devices_env}={value}", *more]}}


def test_vendor_with_device_nodes_alone(node: PlainNode) -> None:
    """No hook, mount, capability or UUID is needed for a device."""
    spec = asking("1")
    injection = plan.plan(spec, Settings(), node)
    assert injection.is_given
    assert injection.edits == {"deviceNodes": [{"path": "/dev/plain1"}]}
    assert injection.grant.devices == [f"{KIND}=1"]
    assert (injection.hook_jobs, injection.requirements, injection.warnings) == ([], {}, [])


@pytest.mark.parametrize("value", ["all", "0,1"])
def test_several_devices(value: str, node: PlainNode) -> None:
    injection = plan.plan(asking(value), Settings(), node)
    assert injection.grant.devices == [f"{KIND}=0", f"{KIND}=1"]


def test_container_without_a_request(node: PlainNode) -> None:
    injection = plan.plan({"process": {"env": ["A=B"]}}, Settings(), node)
    assert injection.source is None
    assert (injection.is_given, injection.edits) == (False, {})


def test_refused_request_adds_no_edits(node: PlainNode) -> None:
    """The warning is in the plan, and in the caller's list also if the plan fails later."""
    settings = chosen(accept_env_when_unprivileged=False)
    injection = plan.plan(asking("0"), settings, node)
    assert not injection.is_given
    assert [warning.code for warning in injection.warnings] == ["GH1007"]
    heard: list[GpuhookError] = []
    spec = {**asking("0"), "annotations": {"cdi.k8s.io/a": f"{KIND}=9"}}
    settings = chosen(accept_volume_mounts=True)
    spec["mounts"] = [{"source": "/dev/null", "destination": f"{WORDS.mount_prefix}/cdi/x"}]
    with pytest.raises(GpuhookError) as caught:
        plan.plan(spec, settings, node, None, heard)
    assert caught.value.code == "GH1102"
    assert [warning.code for warning in heard] == ["GH1028"]


def test_plan_changes_nothing() -> None:
    """The config.json does not change, and a second plan equals the first."""
    context = described("h100x8", chosen(on_unknown_capability="ignore"))
    spec = {
        "process": {
            "env": [
                f"{vocabulary.VOCABULARY.devices_env}=0,1",
                f"{vocabulary.VOCABULARY.capabilities_env}=compute,none-such",
            ]
        }
    }
    before = copy.deepcopy(spec)
    first, second = (plan.plan(spec, context.settings, context.node) for _ in range(2))
    assert spec == before
    assert first.edits == second.edits
    assert [one.arguments() for one in first.hook_jobs] == [
        one.arguments() for one in second.hook_jobs
    ]
    assert first.hook_jobs
    assert not first.edits["hooks"]
    assert [warning.code for warning in first.warnings] == ["GH1061"]
    void = f"{vocabulary.VOCABULARY.devices_env}=void"
    assert plan.with_void(first.edits, vocabulary.VOCABULARY)["env"][-1] == void
    assert first.edits == second.edits


def test_plan_of_names_equals_the_plan_of_a_request() -> None:
    context = described("t4")
    spec = {"process": {"env": [f"{vocabulary.VOCABULARY.devices_env}=0"]}}
    by_request = plan.plan(spec, context.settings, context.node)
    default = vocabulary.parse_capabilities(None)
    by_name = plan.plan_names(["0"], default, context.node)
    assert by_name.edits == by_request.edits


def test_warnings_are_logged_also_before_a_fault(tmp_path: Path) -> None:
    settings = chosen(on_unknown_capability="ignore", spec_dirs=[str(tmp_path)])
    context = PlanContext(settings, this_node(settings), KeptLog())
    capabilities = f"{vocabulary.VOCABULARY.capabilities_env}=none-such"
    spec = {"process": {"env": [f"{vocabulary.VOCABULARY.devices_env}=0", capabilities]}}
    source = source_logged(spec, context)
    assert source is not None
    with pytest.raises(GpuhookError):
        plan_logged(spec, source, context)
    assert [warning.code for warning in context.log.warnings] == ["GH1061"]


class Refresh:
    """A refresh that reports `trouble`, and is needed or not."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.needed: list[bool] = []

    def __call__(self, is_needed: Callable[[], bool]) -> str:
        self.needed.append(is_needed())
        return self.trouble


def stale(times: int = 2) -> Callable[[], str]:
    """Return a function that fails because of a stale spec, twice, and then succeeds."""
    left = [fault("GH1120", changes="boot")] * times

    def work() -> str:
        if left:
            raise left.pop()
        return "planned"

    return work


def test_stale_specs_are_refreshed_and_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuhook.host.hot.state.is_rootless", lambda: False)
    settings, refresh = Settings(), Refresh()
    context = PlanContext(settings, this_node(settings), KeptLog(), refresh)
    assert with_fresh_specs(stale(), context) == "planned"
    assert refresh.needed == [True]


@pytest.mark.parametrize(
    ("on_stale", "trouble", "said"),
    [("refresh", "GH1200: no library", "did not help: GH1200"), ("refuse", "", "boot")],
)
def test_failed_or_disabled_refresh_is_a_fault(
    on_stale: str, trouble: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuhook.host.hot.state.is_rootless", lambda: False)
    settings, refresh = chosen(on_stale=on_stale), Refresh(trouble)
    context = PlanContext(settings, this_node(settings), KeptLog(), refresh)
    with pytest.raises(GpuhookError, match=said) as caught:
        with_fresh_specs(stale(9), context)
    assert caught.value.code == "GH1120"
    assert bool(refresh.needed) is bool(trouble)


def test_a_refresh_that_fails_for_another_spec_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """One vendor's driver is broken; the stale spec of the other's was written again."""
    monkeypatch.setattr("gpuhook.host.hot.state.is_rootless", lambda: False)
    settings, refresh = Settings(), Refresh("GH1200: no library")
    context = PlanContext(settings, this_node(settings), KeptLog(), refresh)
    assert with_fresh_specs(stale(), context) == "planned"
