# SPDX-License-Identifier: Apache-2.0
"""Unlisted values are skipped: no planted secret is in a bundle."""

from __future__ import annotations

import json
import time

import pytest
import yaml

from gpuhook.support_bundle import log_lines
from gpuhook.support_bundle.allow_list import DOCUMENTS, OF_DOCUMENTS, READINGS
from gpuhook.support_bundle.redaction import LEFT_OUT, AllowList
from tests.unit.bundle_secrets import KINDS

DAEMON, SPEC, TOML = "/etc/docker/daemon.json", "/etc/cdi/a.yaml", "/etc/containerd/config.toml"
SETTINGS, UNIT, PLUGIN = (
    "/etc/gpuhook/config.yaml",
    "/etc/systemd/system/docker.service",
    "/var/lib/kubelet/pods/0/volumes/kubernetes.io~configmap/c/default",
)
PATHS = (
    DAEMON, SPEC, TOML, SETTINGS, UNIT, PLUGIN, "/etc/os-release", "/proc/7/cmdline",
    "/var/lib/kubelet/config.yaml", "/run/gpuhook/containers/0-a.json", "/usr/bin/gpuhook-runtime",
    "/usr/share/containers/oci/hooks.d/a.json", "/etc/passwd", "/etc/shadow", "/etc/subuid",
    "/etc/nsswitch.conf",
    "/home/ada/.config/docker/daemon.json", "/proc/7/environ", "/var/lib/kubelet/kubeconfig",
)  # fmt: skip


def bundled(text: str, path: str) -> str:
    content = AllowList().content(path, text.encode(), f"files{path}")
    return "" if content is None else content.decode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_has_a_planted_secret(kind: str, path: str) -> None:
    text, planted = KINDS[kind]
    assert [one for one in planted if one in bundled(text, path)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_document_or_log_has_a_planted_secret(kind: str) -> None:
    text, planted = KINDS[kind]
    document = {
        "env": [f"A={text}"], "environment": {"A": text}, "annotations": {text: text},
        "args": ["x", text, f"--token={text}", "--password", text], "message": text, "said": text,
        "argv": [f"/usr/bin/x {text}"], "other": [{"name": "A", "value": text}], text: text,
    }  # fmt: skip
    found = json.dumps(AllowList().document(document, DOCUMENTS, "here"))
    found += json.dumps(AllowList().document({"processes": [document]}, READINGS["processes"], "x"))
    found += "".join(log_lines.line(line) for line in text.splitlines())
    found += log_lines.line(json.dumps({"timestamp": "2026-01-01T00:00:00Z", "level": "info",
                                        "event": text, "message": text, "gpu": text}))  # fmt: skip
    assert [one for one in planted if json.dumps(one)[1:-1] in found or one in found] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (TOML, '[a]\npassword = "hunter2"\n# hunter2\n[plugins."x".registry."u:hunter2"]\n'),
        (TOML, 'version = 2 # hunter2\n[hunter2]\nversion = "hunter2 = \n'),
        (SPEC, "cdiVersion: 0.6.0 # hunter2\nannotations: {a: hunter2}\nkind: nvidia.com/gpu\n"),
        (SPEC, "containerEdits: {env: [A=hunter2], hooks: [{args: [x, --token=hunter2]}]}\n"),
        (SPEC, "containerEdits: {hooks: [{args: [x, -phunter2, --token, hunter2]}]}\n"),
        (SPEC, "kind: a\n---\nkind: [hunter2\n"),
        (DAEMON, '{"runtimes": {"a": {"path": "/x", "env": {"A": "hunter2"}}}}'),
        (DAEMON, '{"path": "hunter2", "path": {"password": "hunter2"}, "proxies": "hunter2"}'),
        (DAEMON, '{"default-runtime": "http://me:hunter2@proxy:3128"}'),
        (DAEMON, '{"a": "hunter2", '),
        (UNIT, "[Service]\nExecStart=/usr/bin/dockerd --token hunter2\nEnvironment=A=hunter2\n"),
        (SETTINGS, "request:\n  onMissingDriver: {token: hunter2}\nhunter2 a: 1\n"),
        ("/usr/bin/gpuhook", "#!/bin/sh\nexport TOKEN=hunter2\nexec python3 # gpuhook hunter2\n"),
        ("/proc/7/cmdline", "dockerd\0--token\0hunter2\0--add-runtime=u:hunter2@h:1\0"),
    ],
)  # fmt: skip
def test_unlisted_value_is_left_out(path: str, text: str) -> None:
    assert "hunter2" in text
    assert "hunter2" not in bundled(text, path).replace("hunter2 a", "")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (SPEC, "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ncontainerEdits: {env: [PATH=/bin]}\n"),
        (DAEMON, '{"runtimes": {"nvidia": {"path": "/usr/bin/gpuhook-runtime", "args": []}}}'),
        (TOML, 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'),
        (SETTINGS, "request:\n  onMissingDriver: start\n"),
        ("/proc/driver/nvidia/version", "NVRM version: 580.95.05\n"),
        ("/proc/7/cmdline", "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0"),
    ],
)
def test_text_with_listed_keys_is_kept(path: str, text: str) -> None:
    assert bundled(text, path) == text


def test_marker_shows_that_a_value_is_left_out() -> None:
    allowed = AllowList()
    content = allowed.content(SPEC, b"kind: a/b\nsecret: hunter2\n", "here")
    assert content is not None
    assert yaml.safe_load(content) == {"kind": "a/b", "secret": LEFT_OUT}
    assert dict(allowed.removed) == {("here", "secret"): 1}
    assert dict(allowed.kept) == {("here", "kind"): 1}


def test_lines_of_gpuhooks_log_keep_listed_keys() -> None:
    line = 'timestamp=2026-01-01T00:00:00Z level=info event="list sent" gpu=0 pod=ada token=x'
    found = json.loads(log_lines.line(line))
    assert found.keys() == {"timestamp", "level", "event", "gpu"}
    assert log_lines.line("I1101 Registered device plugin with token=x") == ""
    assert log_lines.line('{"level": "info"}') == ""


@pytest.mark.parametrize(
    "text", ["a" * 500_000, "[" * 500_000, '"a\\' * 100_000, "a: b\n" * 50_000]
)
@pytest.mark.parametrize("path", [SPEC, DAEMON, TOML, UNIT, "/usr/bin/gpuhook"])
def test_any_text_is_processed_in_bounded_time(text: str, path: str) -> None:
    start = time.monotonic()
    bundled(text, path)
    assert time.monotonic() - start < 20


def test_what_doctor_reads_of_nri_and_dra_is_kept() -> None:
    table = "[plugins.'io.containerd.nri.v1.nri']\ndisable = false\nplugin_path = '/opt/nri'\n"
    crio = "[crio.nri]\nenable_nri = true\nnri_listen = '/run/nri.sock'\n"
    state = '{"Data":"{\\"Entries\\":[{\\"Namespace\\":\\"team\\"}]}","Checksum":1}'
    assert bundled(table, TOML) == table
    assert bundled(crio, "/etc/crio/crio.conf.d/a.conf") == crio
    assert bundled(state, "/var/lib/kubelet/dra_manager_state") == state
    sockets = {"/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock": "Connection refused"}
    processes = [{"argv": ["gpuhook", "nri", "run", "--index", "11"]}, {"argv": ["dra", "run"]}]
    for name, document in (("draSockets", sockets), ("processes", processes)):
        kept = AllowList().document({name: document}, READINGS[name], "here")
        assert kept == {name: document}


def test_dra_status_keeps_its_keys() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule", "since": ""}
    driver = {"name": "gpu.nvidia.com", "claims": [{"uid": "1"}], "sockets": [{"taints": [taint]}]}
    document = {"schema": "gpuhook/dra-status/v1", "drivers": [driver], "token": "hunter2"}
    kept = AllowList().document(document, OF_DOCUMENTS["dra-status.json"], "here")
    assert kept == {**document, "token": LEFT_OUT}
    assert AllowList().document({"value": "hunter2"}, DOCUMENTS, "here") == {"value": LEFT_OUT}
