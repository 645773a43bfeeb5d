# SPDX-License-Identifier: Apache-2.0
"""The settings that decide which containers may have a GPU, each at a create."""

from __future__ import annotations

from pathlib import Path

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks, installation
from tests.daemon_set import asking


def gpus(bundle: Bundle) -> list[str]:
    """Return the paths of the GPUs' nodes in a config.json."""
    paths = [device["path"] for device in bundle.config()["linux"].get("devices", [])]
    return [path for path in paths if path[len("/dev/nvidia") :].isdigit()]


def test_variable_of_unprivileged_container_is_refused(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """With acceptEnvWhenUnprivileged off, the variable applies with CAP_SYS_ADMIN only."""
    strict = node8.apart(tmp_path / "node", request={"acceptEnvWhenUnprivileged": False})
    plain = bundle_of("distroless", ["/probe"], asks("0"))
    before = plain.file.read_bytes()
    done = strict.edit(plain)
    assert done.warned == ["GH1007"]
    assert "NVIDIA_VISIBLE_DEVICES" in done.log
    assert plain.file.read_bytes() == before
    config = plain.config()
    config["process"]["capabilities"]["bounding"] = ["CAP_SYS_ADMIN"]
    plain.write(config)
    assert strict.edit(plain).rc == 0
    assert gpus(plain) == [strict.device(0)]


def test_volume_mounts_name_devices(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """With acceptVolumeMounts on, mounts of /dev/null name devices, and precede the variable."""
    name = f"/var/run/nvidia-container-devices/{node8.gpu(3).uuid}"
    bundle = bundle_of("distroless", ["/probe"], asks("0"))
    config = bundle.config()
    config["mounts"].append({"destination": name, "source": "/dev/null", "type": "bind"})
    bundle.write(config)
    assert node8.edit(bundle).rc == 0
    assert gpus(bundle) == [node8.device(0)]
    bundle.write(config)
    accepting = node8.apart(tmp_path / "node", request={"acceptVolumeMounts": True})
    assert accepting.edit(bundle).rc == 0
    assert gpus(bundle) == [node8.device(3)]


def test_device_plugin_gets_all_gpus_under_each_policy(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The DaemonSet's container gets all GPUs, whether or not the node accepts its variable.

    No refusal is reported: the ignored request names the same GPUs as the accepted one.
    """
    spec = asking()
    own = [one for one in spec["mounts"] if one["source"] == "/dev/null"]
    bundle = bundle_of("distroless", ["/probe"], spec["process"]["env"])
    config = bundle.config()
    config["mounts"] += own
    config["process"]["capabilities"] = spec["process"]["capabilities"]
    closed = {"acceptEnvWhenUnprivileged": False, "acceptVolumeMounts": True}
    failing = node8.apart(tmp_path / "failing", request={"onRefusal": "fail"})
    for node in (node8, failing, node8.apart(tmp_path / "closed", request=closed)):
        bundle.write(config)
        done = node.edit(bundle)
        assert (done.rc, done.warned) == (0, []), done
        assert sorted(gpus(bundle)) == sorted(node.device(n) for n in range(8))
    bundle.write({**config, "mounts": [m for m in config["mounts"] if m not in own]})
    assert node.edit(bundle).warned == ["GH1007"]
    assert gpus(bundle) == []


def test_ignored_request_for_other_gpus_is_reported(
    node8: Installation, bundle_of: Bundles
) -> None:
    bundle = bundle_of("distroless", ["/probe"], asks("0"))
    config = bundle.config()
    name = "/var/run/nvidia-container-devices/all"
    config["mounts"].append({"destination": name, "source": "/dev/null", "type": "bind"})
    bundle.write(config)
    assert node8.edit(bundle).warned == ["GH1007"]
    assert gpus(bundle) == [node8.device(0)]


def test_environment_overrides_settings(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """An invalid variable refuses a container that requests a GPU, and no other container."""
    lax = node8.apart(tmp_path / "node", request={"acceptEnvWhenUnprivileged": True})
    bundle = bundle_of("distroless", ["/probe"], asks("0"))
    config = bundle.config()
    done = lax.edit(bundle, env={"GPUHOOK_REQUEST_ACCEPT_ENV_WHEN_UNPRIVILEGED": "false"})
    assert done.warned == ["GH1007"]
    assert gpus(bundle) == []
    wrong = {"GPUHOOK_REQUEST_ACCEPT_ENV_WHEN_UNPRIVILEGED": "perhaps"}
    bundle.write(config)
    refused = lax.edit(bundle, env=wrong)
    assert refused.rc == 1
    assert "GH1533" in refused.log
    assert "it must be true or false" in refused.log
    plain = bundle_of("distroless", ["/probe"], [])
    before = plain.file.read_bytes()
    assert lax.edit(plain, env=wrong).rc == 0
    assert plain.file.read_bytes() == before
    assert lax.edit(bundle).rc == 0
    assert gpus(bundle) == [lax.device(0)]


def test_request_for_all_without_a_driver(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The container starts without GPUs; with onMissingDriver "refuse" it is refused."""
    none = {"GPUHOOK_HOST_ROOT": str(tmp_path)}
    bundle = bundle_of("distroless", ["/probe"], asks("all"))
    before = bundle.file.read_bytes()
    started = node8.edit(bundle, env=none)
    assert started.warned == ["GH1008"]
    strict = node8.apart(tmp_path / "node", request={"onMissingDriver": "refuse"})
    refused = strict.edit(bundle, env=none)
    assert refused.rc == 1
    assert "GH1006" in refused.log
    assert bundle.file.read_bytes() == before


def test_request_by_uuid_without_a_driver_is_refused(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """A UUID is a grant for this node: the container does not start without its GPU."""
    own = installation(tmp_path / "own", "t4", node8.bindir)
    bundle = bundle_of("distroless", ["/probe"], asks(str(own.gpu(0).uuid)))
    before = bundle.file.read_bytes()
    for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        Path(own.node.host_root, path).unlink()
    refused = own.edit(bundle)
    assert refused.rc == 1
    assert "GH1120" in refused.log
    assert bundle.file.read_bytes() == before
