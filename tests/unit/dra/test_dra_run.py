# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra run`: its options, and the errors of a start."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.dra.dra_options import OPTIONS, DraLaunch, dra_launch
from tests.refusal import refused

CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def run(*options: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["dra", "run", *options], prog_name="gpuhook", env={**env})


def parsed(environ: dict[str, str], **command_line: str) -> DraLaunch:
    given = {name.replace("_", "-"): (text,) for name, text in command_line.items()}
    return dra_launch(read_overrides(given, environ, OPTIONS), {**CLUSTER, **environ})


def test_options_take_precedence_over_variables() -> None:
    environ = {
        "NODE_NAME": "node1",
        "POD_UID": "uid-1",
        "GPUHOOK_KUBELET_ROOT": "/k",
        "CONFIG_FILE": "/config.yaml",
        "GPUHOOK_METRICS_ADDRESS": ":1",
        "DEVICE_LIST_STRATEGY": "no-such-strategy",  # of the device plugin only
    }
    found = parsed(environ, kubelet_root="/var/lib/k0s/kubelet", cdi_directory="/etc/cdi")
    assert found.kubelet_root == "/var/lib/k0s/kubelet"
    assert found.pod_uid == "uid-1"
    assert found.plugin.node_name == "node1"
    assert found.plugin.cdi_directory == "/etc/cdi"
    assert found.plugin.source.file == "/config.yaml"
    assert found.plugin.overrides["gpuhook.metrics.address"].value == ":1"


def test_defaults_are_those_of_a_pod() -> None:
    found = parsed({"NODE_NAME": "node1"})
    assert (found.kubelet_root, found.pod_uid) == ("/var/lib/kubelet", "")
    assert found.service_account == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert found.plugin.cdi_directory == "/var/run/cdi"


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({}, "the name of the node"),
        ({"NODE_NAME": "n", "POD_UID": "../x"}, "not the UID of a pod"),
        ({"NODE_NAME": "n", "KUBERNETES_SERVICE_HOST": ""}, "the address of the API server"),
    ],
)
def test_a_driver_that_lacks_something_says_what(environ: dict[str, str], word: str) -> None:
    with refused("GH2609", word):
        parsed(environ)


def test_help_has_every_option_and_variable() -> None:
    text = " ".join(run("--help-all").stdout.split())
    for option in OPTIONS:
        assert f"--{option.name}" in text
        assert all(variable in text for variable in option.variables)
    assert "Without it, the plugin does not use the API server" not in text


def test_a_missing_token_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "KUBERNETES_SERVICE_HOST", "10.0.0.1")
    done = run("--node-name=node1", "--service-account=/nowhere")
    assert done.exit_code == 2
    assert "GH2609" in done.stderr
    assert "/nowhere has no token" in done.stderr
    done = run("--node-name=node1", "--inventory=t4")
    assert "a node of --inventory is not in the cluster" in done.stderr
