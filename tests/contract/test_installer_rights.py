# SPDX-License-Identifier: Apache-2.0
"""The installer's and the NRI plugin's pods in runc, with gpuhook's image and few capabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.charts import rendering
from tests.charts.values import NRI
from tests.contract import runtimes
from tests.contract.pod_container import PodContainer
from tests.contract.runtimes import Result, lifecycle
from tests.contract.test_image import NODE, host, on_host
from tests.nri.fake_runtime import FakeRuntime
from tests.waiting import eventually

__all__ = ["host"]

# The image takes a minute to build.
pytestmark = pytest.mark.thorough

PATH = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
# docs/how-to/image.md, "Without privileged".
LEAST = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"], "add": ["SYS_CHROOT", "SYS_PTRACE"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class InstallerPod:
    """The container of the chart's installer on a host, with the capabilities LEAST."""

    def __init__(self, image: Path, host: Path, place: Path) -> None:
        self.image, self.host, self.place = image, host, place
        self.count = 0

    def gpuhook(self, *words: str) -> Result:
        """Run gpuhook with these words in the pod."""
        self.count += 1
        values = {"installer": {"enabled": True, "securityContext": LEAST}}
        pod = rendering.pod(rendering.rendered(values), "-installer")
        manifest = PodContainer(pod, self.host, image=self.image)
        command = ["/usr/bin/gpuhook", *words, "--host-root", "/host"]
        return runtimes.run(manifest.bundle(self.place / f"{self.count}", command, PATH))


@pytest.fixture
def installer(unpacked: Path, host: Path, tmp_path: Path) -> InstallerPod:
    return InstallerPod(unpacked, host, tmp_path)


def test_installer_without_privileged(installer: InstallerPod) -> None:
    """It installs, tests the copy, configures an engine, changes nothing again, and uninstalls."""
    words = ("node", "install", "--engine", "docker", "-o", "json")
    before = (installer.host / "etc/docker/daemon.json").read_bytes()
    done = installer.gpuhook(*words)
    assert done.rc == 0, done
    assert json.loads(done.stdout)["changed"] is True
    assert "skipped" not in done.stderr
    assert b"gpuhook-runtime" in (installer.host / "etc/docker/daemon.json").read_bytes()
    ran = on_host(installer.host, "/opt/gpuhook/bin/gpuhook-runtime", "--version")
    assert ran.rc == 0, ran
    again = installer.gpuhook(*words)
    assert json.loads(again.stdout)["changed"] is False, again
    done = installer.gpuhook("node", "uninstall")
    assert done.rc == 0, done
    assert (installer.host / "etc/docker/daemon.json").read_bytes() == before
    assert not (installer.host / "opt/gpuhook").exists()


@pytest.fixture
def runtime(host: Path) -> Iterator[FakeRuntime]:
    """Yield a container runtime that waits for NRI plugins on the host."""
    made = FakeRuntime(host / "var/run/nri/nri.sock")
    yield made
    made.close()


def nri_pod(image: Path, host: Path, without: Sequence[str]) -> PodContainer:
    """Return the NRI plugin's container that is not privileged."""
    nri = {
        "enabled": True,
        "privileged": False,
        "env": [{"name": "GPUHOOK_HOST_ROOT", "value": NODE}],
    }
    pod = rendering.pod(rendering.rendered(NRI | {"nri": nri}), "-nri")
    return PodContainer(pod, host, without=without, image=image)


@pytest.mark.parametrize("without", [[], ["CAP_SYS_CHROOT"]], ids=["chroot", "none"])
def test_nri_plugin_without_privileged(
    installer: InstallerPod, runtime: FakeRuntime, tmp_path: Path, without: list[str]
) -> None:
    """SYS_CHROOT: it runs the node's gpuhook in the node's root. With it, the plugin connects."""
    assert installer.gpuhook("node", "install", "--engine", "none").rc == 0
    manifest = nri_pod(installer.image, installer.host, without)
    command = [*manifest.container["command"], *manifest.container["args"]]
    made = manifest.bundle(tmp_path / "nri", command, PATH | manifest.environment())
    with lifecycle(made) as container:
        container.start()
        if without:
            eventually(lambda: container.state["status"] == "stopped", "the end of the pod")
            assert "Operation not permitted" in container.errors
            return
        link = runtime.accept()
        assert link.start("containerd", "1.7.24~ds1") == 8
    assert installer.gpuhook("node", "uninstall").rc == 0
