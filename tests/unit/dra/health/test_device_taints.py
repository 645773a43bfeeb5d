# SPDX-License-Identifier: Apache-2.0
"""Taints of unhealthy devices: which trouble taints which device, and for how long."""

from __future__ import annotations

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health import device_trouble
from gpuhook.device_plugin.health.device_trouble import DeviceTrouble
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.health.health_marks import Evidence
from gpuhook.dra.health.device_taints import tainted
from gpuhook.dra.pool.pool_device import Pool, Taint
from gpuhook.dra.slices.server_form import with_times
from gpuhook.vendors.nvidia.gpu.xids import APPLICATION, TABLE
from gpuhook.vendors.nvidia.plugin.nvml_watcher import XidReport
from tests.unit.dra.claims.claims_world import DRIVER, NODE, gpu

POOL = Pool(DRIVER, NODE, (gpu(0), gpu(1), gpu(2)))
DEVICES = [one.device for one in POOL.devices]
AT_100 = "1970-01-01T00:01:40Z"


def health(boot: str = "boot-1") -> GpuHealth:
    return GpuHealth(Health(), Evidence(boot=boot))


def taints(found: GpuHealth, effect: str = "NoSchedule") -> dict[str, tuple[Taint, ...]]:
    """Return the taints by the names of the devices that have any."""
    pool = tainted(POOL, found.troubles(DEVICES), effect)
    return {one.name: one.taints for one in pool.devices if one.taints}


def test_fatal_xid_taints_its_gpu_only_with_the_time_of_the_first_event() -> None:
    found = health()
    for now in (100.0, 200.0):
        found.add_xid(XidReport("GPU-1", 79), None, now)
    assert taints(found) == {"gpu-1": (Taint(f"{DRIVER}/xid", "79", "NoSchedule", AT_100),)}
    assert taints(found, "NoExecute")["gpu-1"][0].effect == "NoExecute"


def test_application_xids_never_taint() -> None:
    found = health()
    for xid in (xid for xid, known in TABLE.items() if known.kind == APPLICATION):
        found.add_xid(XidReport("GPU-1", xid), None, 100.0)
    assert {13, 31, 43, 45, 68} <= {xid for xid, one in TABLE.items() if one.kind == APPLICATION}
    assert taints(found) == {}


def test_two_xids_are_one_taint_and_the_older_is_its_value() -> None:
    """The API server takes a key and an effect for the identity of a taint."""
    found = health()
    for now, xid in ((100.0, 95), (150.0, 79)):
        found.add_xid(XidReport("GPU-1", xid), None, now)
    assert [(one.value, one.time_added) for one in taints(found)["gpu-1"]] == [("95", AT_100)]


def test_lost_gpu_taints_itself_only() -> None:
    found = health()
    found.mark_lost("GPU-2", "it has fallen off the bus", 100.0)
    assert taints(found) == {"gpu-2": (Taint(f"{DRIVER}/gpu-lost", "", "NoSchedule", AT_100),)}


def test_taints_end_with_the_evidence_of_a_recovery() -> None:
    """A reboot, a driver that requires no action, and an operator's request."""
    found = health()
    for uuid in ("GPU-0", "GPU-1", "GPU-2"):
        found.add_xid(XidReport(uuid, 79), None, 100.0)
    found.update_action("GPU-0", "none", 150.0)
    assert taints(found).keys() == {"gpu-1", "gpu-2"}
    found.clear("GPU-1", 160.0)
    assert taints(found).keys() == {"gpu-2"}
    found.update_evidence(Evidence(boot="boot-2"))
    assert taints(found) == {}


def test_silent_driver_evicts_no_pod_and_has_the_time_of_the_server() -> None:
    """Each turn computes the taint again; the one in the API server does not change."""
    found = health()
    found.set_driver_trouble("the driver does not answer")
    (taint,) = taints(found, "NoExecute")["gpu-0"]
    assert taint == Taint(f"{DRIVER}/unmonitored", "", "NoSchedule")
    pool = tainted(POOL, found.troubles(DEVICES), "NoExecute")
    stored = {"name": "gpu-0", "taints": [{"key": taint.key, "effect": taint.effect}]}
    stored["taints"][0]["timeAdded"] = AT_100  # type: ignore[index] # a list
    times = [
        one.taints[0].time_added for one in with_times(pool, [{"devices": [stored]}], "now").devices
    ]
    assert times == [AT_100, "now", "now"]


def test_other_taints_of_a_device_remain() -> None:
    own = Taint(f"{DRIVER}/unusable")
    pool = Pool(DRIVER, NODE, (gpu(0, taints=(own,)),))
    fault = DeviceTrouble(device_trouble.FAULT, "uncorrectable errors have risen from 0 to 1")
    (device,) = tainted(pool, {"GPU-0": (fault,)}, "None").devices
    assert device.taints == (own, Taint(f"{DRIVER}/fault", "", "None"))
