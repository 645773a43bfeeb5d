# SPDX-License-Identifier: Apache-2.0
"""The settings that decide who may have a GPU, each through a create."""

from __future__ import annotations

from pathlib import Path

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks, installation
from tests.daemon_set import asking


def gpus(bundle: Bundle) -> list[str]:
    """Return the GPUs' nodes among the devices of a config.json."""
    paths = [device["path"] for device in bundle.config()["linux"].get("devices", [])]
    return [path for path in paths if path[len("/dev/nvidia") :].isdigit()]


def test_unprivileged_variables(node8: Installation, tmp_path: Path, bundle_of: Bundles) -> None:
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


def test_volume_mounts(node8: Installation, tmp_path: Path, bundle_of: Bundles) -> None:
    """With acceptVolumeMounts on, mounts of /dev/null name devices, and beat the variable."""
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


def test_the_plugin_itself_where_the_door_is_closed(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The DaemonSet as it ships gets all GPUs, whether or not the node takes its variable.

    Nothing is reported: the request that the node ignores names the same GPUs as the one it takes.
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


def test_an_ignored_request_for_other_gpus_is_reported(
    node8: Installation, bundle_of: Bundles
) -> None:
    bundle = bundle_of("distroless", ["/probe"], asks("0"))
    config = bundle.config()
    name = "/var/run/nvidia-container-devices/all"
    config["mounts"].append({"destination": name, "source": "/dev/null", "type": "bind"})
    bundle.write(config)
    assert node8.edit(bundle).warned == ["GH1007"]
    assert gpus(bundle) == [node8.device(0)]


def test_settings_of_the_engines_environment(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """A variable wins over the file; a wrong one stops those who request a GPU, and no others."""
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


def test_no_driver(node8: Installation, tmp_path: Path, bundle_of: Bundles) -> None:
    """On a node without a driver an image's `all` starts without, or is refused by a setting."""
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


def test_a_grant_without_a_driver(node8: Installation, tmp_path: Path, bundle_of: Bundles) -> None:
    """A container that was given a GPU by its UUID never starts without it."""
    own = installation(tmp_path / "own", "t4", node8.bindir)
    bundle = bundle_of("distroless", ["/probe"], asks(str(own.gpu(0).uuid)))
    before = bundle.file.read_bytes()
    for told in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        Path(own.node.host_root, told).unlink()
    refused = own.edit(bundle)
    assert refused.rc == 1
    assert "GH1120" in refused.log
    assert bundle.file.read_bytes() == before
