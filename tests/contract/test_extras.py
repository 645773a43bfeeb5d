# SPDX-License-Identifier: Apache-2.0
"""Requests in addition to GPUs: IMEX channels, GDS and other switches, MIG administration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bundles import CAPABILITIES, Bundle, Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.live import sleeping, wrapped
from tests.contract.roots import Roots
from tests.contract.runtimes import Result
from tests.contract.views import View, questions
from tests.simulated import extra_nodes

IMEX = "/dev/nvidia-caps-imex-channels/channel"
CAP = "/dev/nvidia-caps/nvidia-cap"
MOUNT = "/var/run/nvidia-container-devices/imex/"
FILES = ("/run/udev/data/b259:0", "/etc/cufile.json")
SWITCHES = {
    "NVIDIA_GDS": ["/dev/nvidia-fs0", "/dev/nvidia-fs1"],
    "NVIDIA_MOFED": ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"],
    "NVIDIA_GDRCOPY": ["/dev/gdrdrv"],
    "NVIDIA_NVSWITCH": ["/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitchctl"],
}
PRIVILEGED = {"capabilities": {"bounding": [*CAPABILITIES, "CAP_SYS_ADMIN"]}}
ROUTES = ("wrapper", "prestart")


@pytest.fixture(scope="module")
def node_with_extras(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on a node with a GPU and every extra device; no test changes it."""
    made = installation(tmp_path_factory.mktemp("full"), "t4", node8.bindir)
    assert made.node.driver_root == made.node.dev_root == made.node.host_root
    extra_nodes.add(made.node.host_root)
    made.generate()  # with the added files in /proc, the first spec is stale
    return made


@pytest.fixture
def node_without_extras(node8: Installation, tmp_path: Path) -> Installation:
    """Return an installation on a node with a GPU and no extra device, for one test."""
    return installation(tmp_path / "bare", "t4", node8.bindir)


def number(path: str) -> str:
    """Return "major:minor" of a node."""
    major, minor, *_ = extra_nodes.NODES[path]
    return f"{major}:{minor}"


def probe_command() -> list[str]:
    """Return the command of the probe that tries each node except those of GPUs."""
    return ["/probe", *questions(*FILES, tries=[number(path) for path in extra_nodes.NODES])]


def run_by(route: str, own: Installation, made: Bundle) -> Result:
    """Run a bundle by gpuhook-runtime, or by plain runc with the prestart hook."""
    return own.run(made) if route == "wrapper" else own.run_by_hook(made)


def assert_extra(view: View, paths: Sequence[str]) -> None:
    """Assert that a container has these extra nodes and can open them, and no others."""
    nodes = {path for path in view.nodes if path in extra_nodes.NODES}
    assert nodes == set(paths)
    openable = {tried for tried, result in view.tries.items() if result != "EPERM"}
    assert openable == {number(path) for path in paths}
    assert "/dev/nvidia0" in view.nodes


def with_channels(made: Bundle, *ids: str) -> Bundle:
    """Add the mounts that request IMEX channels."""
    config = made.config()
    for one in ids:
        mount = {"destination": MOUNT + one, "source": "/dev/null", "type": "bind"}
        config["mounts"].append({**mount, "options": ["bind"]})
    made.write(config)
    return made


@pytest.mark.parametrize("route", ROUTES)
def test_channels_by_variable(
    route: str, node_with_extras: Installation, bundle_of: Bundles
) -> None:
    """A container has the IMEX channels that the variable names, and no others."""
    env = [*asks("0"), "NVIDIA_IMEX_CHANNELS=12,3"]
    view = run_by(route, node_with_extras, bundle_of("debian", probe_command(), env)).view
    assert_extra(view, [IMEX + "3", IMEX + "12"])


@pytest.mark.parametrize("route", ROUTES)
def test_channels_by_mount(
    route: str, node_with_extras: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """Accepted mounts override the variable of channels, not the one of GPUs; if mounts are not
    accepted, the variable applies.
    """
    env = [*asks("0"), "NVIDIA_IMEX_CHANNELS=3"]
    taking = node_with_extras.apart(tmp_path / "taking", request={"acceptVolumeMounts": True})
    made = with_channels(bundle_of("debian", probe_command(), env), "0")
    assert_extra(run_by(route, taking, made).view, [IMEX + "0"])
    made = with_channels(bundle_of("debian", probe_command(), env), "0")
    done = run_by(route, node_with_extras, made)
    assert_extra(done.view, [IMEX + "3"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("channel", "code"), [("5", "GH1037"), ("7", "GH1037"), ("x", "GH1036")])
def test_missing_channel_is_refused(
    route: str, channel: str, code: str, node_with_extras: Installation, bundle_of: Bundles
) -> None:
    """A missing channel, a channel of an earlier driver load and an invalid one are refused."""
    env = [*asks("0"), f"NVIDIA_IMEX_CHANNELS=0,{channel}"]
    done = run_by(route, node_with_extras, bundle_of("debian", probe_command(), env))
    assert done.rc != 0
    assert code in done.stderr


def test_ignored_channels(
    node_with_extras: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """ignoreImexChannels ignores channels without a warning; `all` is ignored with one."""
    ignoring = node_with_extras.apart(tmp_path / "ignoring", request={"ignoreImexChannels": True})
    env = [*asks("0"), "NVIDIA_IMEX_CHANNELS=0,5"]
    done = run_by("wrapper", ignoring, bundle_of("debian", probe_command(), env))
    assert_extra(done.view, [])
    assert "GH" not in done.log
    made = bundle_of("debian", probe_command(), [*asks("0"), "NVIDIA_IMEX_CHANNELS=all"])
    done = run_by("wrapper", node_with_extras, made)
    assert_extra(done.view, [])
    assert "GH1041" in done.log


@pytest.mark.parametrize("route", ROUTES)
def test_switches_add_their_nodes(
    route: str, node_with_extras: Installation, bundle_of: Bundles
) -> None:
    """Each switch adds its nodes, all of them add all nodes; GDS adds its files, read-only."""
    for names in ([name] for name in SWITCHES) if route == "wrapper" else (list(SWITCHES),):
        env = [*asks("0"), *(f"{name}=enabled" for name in names)]
        view = run_by(route, node_with_extras, bundle_of("debian", probe_command(), env)).view
        assert_extra(view, [path for name in names for path in SWITCHES[name]])
        has_files = "NVIDIA_GDS" in names
        for path in ("/run/udev", "/etc/cufile.json"):
            assert (path in view.mounts) == has_files
            if has_files:
                assert {"ro", "nosuid", "nodev"} <= view.mounts[path].options
        if has_files:
            assert all(view.paths[path].content for path in FILES)


@pytest.mark.parametrize("route", ROUTES)
def test_switch_without_devices_is_a_warning(
    route: str, node_without_extras: Installation, bundle_of: Bundles
) -> None:
    """Without extra devices the container starts with its GPU, and the log has warnings."""
    env = [*asks("0"), *(f"{name}=enabled" for name in SWITCHES)]
    done = run_by(route, node_without_extras, bundle_of("debian", probe_command(), env))
    assert_extra(done.view, [])
    if route == "wrapper":
        assert done.log.count("GH1040") == len(SWITCHES)


def test_extras_without_gpus_are_ignored(
    node_with_extras: Installation, bundle_of: Bundles
) -> None:
    """Without a GPU request config.json keeps its bytes."""
    env = ["NVIDIA_GDS=enabled", "NVIDIA_IMEX_CHANNELS=0", "NVIDIA_VISIBLE_DEVICES=void"]
    made = bundle_of("debian", probe_command(), env)
    before = made.file.read_bytes()
    assert node_with_extras.edit(made).rc == 0
    assert made.file.read_bytes() == before


@pytest.mark.parametrize("route", ROUTES)
def test_variables_of_extras_follow_the_policy(
    route: str, node_with_extras: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """If variables of unprivileged containers are refused, variables of extras are too."""
    request = {"acceptEnvWhenUnprivileged": False}
    strict = node_with_extras.apart(tmp_path / "strict", request=request)
    annotations = {"cdi.k8s.io/x": "nvidia.com/gpu=0"}
    env = ["NVIDIA_GDS=enabled", "NVIDIA_IMEX_CHANNELS=0"]
    made = bundle_of("debian", probe_command(), env, annotations)
    assert_extra(run_by(route, strict, made).view, [])
    failing = node_with_extras.apart(tmp_path / "failing", request={**request, "onRefusal": "fail"})
    done = run_by(route, failing, bundle_of("debian", probe_command(), env, annotations))
    assert done.rc != 0
    assert "GH1041" in done.stderr


@pytest.mark.parametrize("route", ROUTES)
def test_mig_administration_needs_privileges(
    route: str, node_with_extras: Installation, bundle_of: Bundles
) -> None:
    """A privileged container has the nodes; an unprivileged one is refused."""
    env = [*asks("0"), "NVIDIA_MIG_CONFIG_DEVICES=all"]
    made = bundle_of("debian", probe_command(), env, process=PRIVILEGED)
    view = run_by(route, node_with_extras, made).view
    assert_extra(view, [CAP + "1"])
    both = bundle_of(
        "debian", probe_command(), [*env, "NVIDIA_MIG_MONITOR_DEVICES=all"], process=PRIVILEGED
    )
    assert_extra(run_by(route, node_with_extras, both).view, [CAP + "1", CAP + "2"])
    done = run_by(route, node_with_extras, bundle_of("debian", probe_command(), env))
    assert done.rc != 0
    assert "GH1038" in done.stderr


SOURCES: dict[str, dict[str, Any]] = {
    "annotation": {"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0,{name}"}},
    "variable": {"env": ["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0,{name}"]},
    "mount": {"mount": "/var/run/nvidia-container-devices/cdi/{path}"},
}
NAMED = {
    "nvidia.com/imex-channel=3": [IMEX + "3"],
    "nvidia.com/imex-channel=all": [IMEX + "0", IMEX + "3", IMEX + "12"],
    "nvidia.com/gds=all": SWITCHES["NVIDIA_GDS"],
    "nvidia.com/mig=config": [CAP + "1"],
    "nvidia.com/mig=all": [CAP + "1", CAP + "2"],
}


def bundle_with_name(
    source: str, name: str, make_bundle: Bundles, root: Path, **oci: Any
) -> Bundle:
    """Return a bundle that requests GPU 0 and a CDI name, by one source of requests."""
    how = SOURCES[source]
    notes = {key: value.format(name=name) for key, value in how.get("annotations", {}).items()}
    env = [one.format(name=name) for one in how.get("env", ())]
    made = make_bundle(root, probe_command(), env, notes, **oci)
    if "mount" in how:
        config = made.config()
        for one in ("nvidia.com/gpu=0", name):
            place = how["mount"].format(path=one.replace("=", "/"))
            mount = {"destination": place, "source": "/dev/null", "type": "bind"}
            config["mounts"].append({**mount, "options": ["bind"]})
        made.write(config)
    return made


@pytest.mark.parametrize("source", SOURCES)
def test_extras_by_cdi_name(
    source: str, node_with_extras: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """Each source of requests can name extras; MIG administration needs privileges."""
    taking = node_with_extras.apart(tmp_path / "taking", request={"acceptVolumeMounts": True})
    root = root_of("debian")
    for name, paths in NAMED.items():
        is_closed = name.startswith("nvidia.com/mig=")
        oci: dict[str, Any] = {"process": PRIVILEGED} if is_closed else {}
        made = bundle_with_name(source, name, bundle_of, root, **oci)
        assert_extra(run_by("wrapper", taking, made).view, paths)
        if is_closed:
            done = run_by("wrapper", taking, bundle_with_name(source, name, bundle_of, root))
            assert done.rc != 0
            assert "GH1038" in done.stderr


def test_spec_of_the_site_limits_the_channels(
    node_with_extras: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """If the site describes channels in a CDI spec, any other channel is refused."""
    own = node_with_extras.apart(tmp_path / "own")
    own.generate("--mode=imex", "--device-id=3", output=own.specs / "imex.yaml")
    for channel, code in (("3", ""), ("0", "GH1042")):
        made = bundle_of("debian", probe_command(), [*asks("0"), f"NVIDIA_IMEX_CHANNELS={channel}"])
        done = run_by("wrapper", own, made)
        if code:
            assert done.rc != 0
            assert code in done.stderr
        else:
            assert_extra(done.view, [IMEX + "3"])


def test_podman_applies_specs_of_extras(
    node_with_extras: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman with plain runc provides what generate-cdi describes."""
    own = node_with_extras.apart(tmp_path / "own")
    for mode in ("imex", "gds", "mig"):
        own.generate(f"--mode={mode}", output=own.specs / f"{mode}.yaml")
    wanted = ("gpu=0", "imex-channel=3", "gds=all", "mig=monitor")
    options = [word for name in wanted for word in ("--device", f"nvidia.com/{name}")]
    integrations = Integrations(own, tmp_path)
    view = integrations.by_podman(root_of("debian"), probe_command(), options, runtime="runc").view
    assert_extra(view, [IMEX + "3", *SWITCHES["NVIDIA_GDS"], CAP + "2"])
    assert {view.paths[path].kind for path in FILES} == {"file"}


def test_extras_are_attached_and_detached(node_with_extras: Installation, tmp_path: Path) -> None:
    """A channel and GDS are attached; MIG administration needs a privileged container."""
    mine = node_with_extras.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks("0"))
    with wrapped(made, mine) as live:
        live.attach("nvidia.com/imex-channel=3", "nvidia.com/gds=all")
        tries = probe_command()[1:]
        view = live.view(tries)
        assert_extra(view, [IMEX + "3", *SWITCHES["NVIDIA_GDS"]])
        live.detach("nvidia.com/imex-channel=3")
        assert_extra(live.view(tries), SWITCHES["NVIDIA_GDS"])
        live.refused("GH1038", "attach", "--device", "nvidia.com/mig=config")
        live.refused("GH1037", "attach", "--device", "nvidia.com/imex-channel=5")


def test_mig_administration_is_attached_and_detached(
    node_with_extras: Installation, tmp_path: Path
) -> None:
    """In a privileged container, attach and detach change the nodes of MIG administration."""
    mine = node_with_extras.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks("0"), process=PRIVILEGED)
    with wrapped(made, mine) as live:
        tries = probe_command()[1:]
        live.attach("nvidia.com/mig=config", "nvidia.com/mig=monitor")
        assert_extra(live.view(tries), [CAP + "1", CAP + "2"])
        live.detach("nvidia.com/mig=config")
        assert_extra(live.view(tries), [CAP + "2"])


def test_explain_lists_extras(node_with_extras: Installation, bundle_of: Bundles) -> None:
    """explain prints the result of each request for extras, and the nodes of each device."""
    env = [*asks("0"), "NVIDIA_GDS=enabled", "NVIDIA_MOFED=1", "NVIDIA_IMEX_CHANNELS=3"]
    made = with_channels(bundle_of("debian", ["/probe"], env), "0")
    done = node_with_extras.gpuhook("explain", str(made.path), "-o", "json")
    assert done.rc == 0, done
    (container,) = json.loads(done.stdout)["containers"]
    assert {one["where"]: one["result"] for one in container["extras"]} == {
        MOUNT: "refused",
        "NVIDIA_GDS": "won",
        "NVIDIA_MOFED": "ignored",
        "NVIDIA_IMEX_CHANNELS": "won",
    }
    nodes = {one["device"]: one["nodes"] for one in container["devices"]}
    assert nodes["nvidia.com/imex-channel=3"] == [IMEX + "3"]
    assert nodes["nvidia.com/gds=all"] == SWITCHES["NVIDIA_GDS"]
    assert [one["index"] for one in container["gpus"]] == ["0"]
    text = node_with_extras.gpuhook("explain", str(made.path)).stdout
    assert "NVIDIA_GDS requests nvidia.com/gds=all in addition" in text
    assert "acceptVolumeMounts" in text
