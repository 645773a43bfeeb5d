# SPDX-License-Identifier: Apache-2.0
"""Claims that the driver prepares, in containers of a real engine that applies their CDI specs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.dra.claims.claim import ClaimName
from tests.cluster_api.cluster_server import Cluster
from tests.contract import engines
from tests.contract.installation import ALL_CONTROL, Installation
from tests.contract.integrations import MKNOD
from tests.contract.roots import Roots
from tests.contract.views import View, questions
from tests.kubelet.allocated_claims import result, stored
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess, dra_process
from tests.kubelet.dra_running import cluster, dra_kubelet

__all__ = ["cluster", "dra_kubelet"]
pytestmark = pytest.mark.contract
DRIVER = "gpu.nvidia.com"


@pytest.fixture
def driver(
    node8: Installation, tmp_path: Path, dra_kubelet: DraKubelet, cluster: Cluster
) -> Iterator[DraProcess]:
    env = {
        "NVIDIA_DRIVER_ROOT": node8.node.driver_root,
        "NVIDIA_CDI_HOOK_PATH": str(node8.bindir / "gpuhook-hook"),
    }
    place = tmp_path / "driver"
    with dra_process(place, node8.node, dra_kubelet, cluster, env=env) as running:
        yield running


def prepared(kubelet: DraKubelet, *names: ClaimName) -> list[str]:
    """Return the CDI devices of claims, as the kubelet passes them to an engine."""
    found = kubelet.prepare(DRIVER, *names)
    assert {one.error for one in found.values()} == {""}
    ids = [i for name in names for one in found[name.uid].devices for i in one.cdi_device_ids]
    return list(dict.fromkeys(ids))


def seen(driver: DraProcess, node8: Installation, root: Path, cdi_names: list[str]) -> View:
    """Return the view of a container of podman that gets these CDI devices."""
    options = [*MKNOD, "--env", "NVIDIA_VISIBLE_DEVICES=all"]
    options += [word for name in cdi_names for word in ("--device", name)]
    return engines.podman(
        driver.place / f"podman-{len(cdi_names)}",
        root,
        ["/probe", *questions(runs=[["nvidia-smi", "-L"]])],
        options,
        cdi=driver.cdi,
        state=node8.state,
    ).view


def gpus(node8: Installation, *numbers: int) -> set[str]:
    return {node8.device(number) for number in numbers} | ALL_CONTROL


def test_a_container_has_the_gpus_of_its_claims(
    driver: DraProcess,
    node8: Installation,
    dra_kubelet: DraKubelet,
    cluster: Cluster,
    root_of: Roots,
) -> None:
    """Also with two requests of one claim, and with two claims: no variable or node is lost."""
    minors = {gpu.minor: gpu.index for gpu in node8.node.node.gpus}
    several = stored(cluster, "several", result("gpu-2"), result("gpu-5"), result("gpu-6", "other"))
    single = stored(cluster, "single", result("gpu-0"))
    ids = prepared(dra_kubelet, several, single)
    assert len(ids) == 3
    view = seen(driver, node8, root_of("debian"), ids)
    assert set(view.gpus()) == gpus(node8, *(minors[n] for n in (0, 2, 5, 6)))
    assert all(view.gpus()[node8.device(minors[n])].allowed for n in (0, 2, 5, 6))
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    one_request = [name for name in ids if name.endswith("-other")]
    other = seen(driver, node8, root_of("debian"), one_request)
    assert set(other.gpus()) == gpus(node8, minors[6])


def test_a_claim_that_has_ended_is_unknown_to_engines(
    driver: DraProcess,
    node8: Installation,
    dra_kubelet: DraKubelet,
    cluster: Cluster,
    root_of: Roots,
) -> None:
    claim = stored(cluster, "single", result("gpu-0"))
    ids = prepared(dra_kubelet, claim)
    assert dra_kubelet.unprepare(DRIVER, claim)[claim.uid].error == ""
    done = engines.podman(
        driver.place / "podman",
        root_of("debian"),
        options=["--device", ids[0]],
        cdi=driver.cdi,
    )
    assert "unresolvable CDI devices" in done.stderr
