# SPDX-License-Identifier: Apache-2.0
"""The chart's NRI plugin: the installed program, in the node's root, with the least privileges."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.charts.rendering import container, one, pod, refused, rendered
from tests.charts.values import DRA, NRI, SETS


@pytest.mark.parametrize("installer", [{}, {"enabled": True, "route": "cdi"}])
def test_plugin_needs_gpuhook_on_the_node(installer: dict[str, object]) -> None:
    """The hooks of a container are the node's."""
    message = refused(NRI | {"installer": installer})
    assert "nri.enabled needs gpuhook on the nodes" in message
    assert "installer.enabled=true" in message


def test_privileges() -> None:
    """The API server is not used; without a privileged container, only the root is changed."""
    for name, privileged in (("nri", True), ("nri-and-dra", False)):
        objects = rendered(SETS[name])
        spec, inner = pod(objects, "-nri"), container(objects, "-nri")
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostPID", "hostNetwork", "serviceAccountName"} & spec.keys()
        (root,) = [mount for mount in inner["volumeMounts"] if mount["name"] == "host"]
        assert root["readOnly"] is True
        context = inner["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        if privileged:
            assert context["privileged"] is True
        else:
            assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
            assert context["allowPrivilegeEscalation"] is False


def test_two_plugins_never_run_at_once() -> None:
    """The runtime would refuse what both change: an update ends the old pod first."""
    strategy = one(rendered(NRI), "DaemonSet", "-nri")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate"}


def test_program_is_that_of_the_installer() -> None:
    values = DRA | NRI
    values["installer"] = {"enabled": True, "engine": "none", "installDir": "/srv/gpu"}
    inner = container(rendered(values), "-nri")
    assert inner["command"][-1] == "/srv/gpu/bin/gpuhook"
    assert inner["args"] == ["nri", "run", "--wait"]


def test_other_directory_of_the_kubelet() -> None:
    inner = container(rendered(NRI | {"kubeletRootDir": "/var/lib/k0s/kubelet"}), "-nri")
    assert inner["args"][-2:] == ["--plugin-directory", "/var/lib/k0s/kubelet/device-plugins"]


def test_command_runs_the_program_in_the_nodes_root(tmp_path: Path) -> None:
    """It waits for the installer, hides the pod, and keeps each argument."""
    inner = container(rendered(NRI | {"nri": {"enabled": True, "args": ["--name", "a b"]}}), "-nri")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "busybox").write_text('#!/bin/sh\nprintf "%s|" "$@" "${KUBERNETES_SERVICE_HOST-no}"\n')
    (tools / "sleep").write_text(f"#!/bin/sh\ntouch {tmp_path}/waited {tmp_path}/program\n")
    script = inner["command"][2].replace('"/host$0"', f"{tmp_path}/program")
    script = script.replace("-x", "-e")
    for path in tools.iterdir():
        path.chmod(0o755)
    command = [*inner["command"][:2], script, inner["command"][3], *inner["args"]]
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    program = "/opt/gpuhook/bin/gpuhook"
    words = ["chroot", "/host", program, "nri", "run", "--wait", "--name", "a b", "no"]
    assert done.stdout.split("|")[:-1] == words
    assert (tmp_path / "waited").exists()
