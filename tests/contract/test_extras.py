# SPDX-License-Identifier: Apache-2.0
"""Requests in addition to GPUs: IMEX channels, switches, the administration of MIG."""

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
def full(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Give gpuhook on a node with one GPU and every extra device, which no test changes."""
    made = installation(tmp_path_factory.mktemp("full"), "t4", node8.bindir)
    assert made.node.driver_root == made.node.dev_root == made.node.host_root
    extra_nodes.add(made.node.host_root)
    made.generate()  # files in /proc about MIG are of another state of the host
    return made


@pytest.fixture
def bare(node8: Installation, tmp_path: Path) -> Installation:
    """Give a node of the test's own with a GPU and no extra device."""
    return installation(tmp_path / "bare", "t4", node8.bindir)


def number(path: str) -> str:
    """Return "major:minor" of a node."""
    major, minor, *_ = extra_nodes.NODES[path]
    return f"{major}:{minor}"


def probe() -> list[str]:
    """Return the probe that tries every node except those of GPUs."""
    return ["/probe", *questions(*FILES, tries=[number(path) for path in extra_nodes.NODES])]


def through(route: str, own: Installation, made: Bundle) -> Result:
    """Run a bundle by gpuhook-runtime, or by plain runc with our prestart hook."""
    return own.run(made) if route == "wrapper" else own.run_hooked(made)


def assert_extra(view: View, paths: Sequence[str]) -> None:
    """Assert that a container has and may open these extra nodes, and no others."""
    held = {path for path in view.nodes if path in extra_nodes.NODES}
    assert held == set(paths)
    may = {tried for tried, told in view.tries.items() if told != "EPERM"}
    assert may == {number(path) for path in paths}
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
def test_channels_by_variable(route: str, full: Installation, bundle_of: Bundles) -> None:
    """The channels named, and none besides."""
    env = [*asks("0"), "NVIDIA_IMEX_CHANNELS=12,3"]
    view = through(route, full, bundle_of("debian", probe(), env)).view
    assert_extra(view, [IMEX + "3", IMEX + "12"])


@pytest.mark.parametrize("route", ROUTES)
def test_channels_by_mount(
    route: str, full: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """Mounts win over the variable where the node takes them, and leave the GPUs to the variable;
    where it does not, the variable applies and the log says what of the mounts."""
    env = [*asks("0"), "NVIDIA_IMEX_CHANNELS=3"]
    taking = full.apart(tmp_path / "taking", request={"acceptVolumeMounts": True})
    made = with_channels(bundle_of("debian", probe(), env), "0")
    assert_extra(through(route, taking, made).view, [IMEX + "0"])
    made = with_channels(bundle_of("debian", probe(), env), "0")
    done = through(route, full, made)
    assert_extra(done.view, [IMEX + "3"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("channel", "code"), [("5", "GH1037"), ("7", "GH1037"), ("x", "GH1036")])
def test_channels_that_are_not_there(
    route: str, channel: str, code: str, full: Installation, bundle_of: Bundles
) -> None:
    """One that is missing, one of an earlier load of the driver, and none at all: refused."""
    env = [*asks("0"), f"NVIDIA_IMEX_CHANNELS=0,{channel}"]
    done = through(route, full, bundle_of("debian", probe(), env))
    assert done.rc != 0
    assert code in done.stderr


def test_channels_that_the_node_ignores(
    full: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """By the setting, without a word; `all` names none, and the log says so."""
    ignoring = full.apart(tmp_path / "ignoring", request={"ignoreImexChannels": True})
    env = [*asks("0"), "NVIDIA_IMEX_CHANNELS=0,5"]
    done = through("wrapper", ignoring, bundle_of("debian", probe(), env))
    assert_extra(done.view, [])
    assert "GH" not in done.log
    made = bundle_of("debian", probe(), [*asks("0"), "NVIDIA_IMEX_CHANNELS=all"])
    done = through("wrapper", full, made)
    assert_extra(done.view, [])
    assert "GH1041" in done.log


@pytest.mark.parametrize("route", ROUTES)
def test_switches(route: str, full: Installation, bundle_of: Bundles) -> None:
    """Each alone gives its nodes, all together give all; GDS brings its files, read-only."""
    for names in ([name] for name in SWITCHES) if route == "wrapper" else (list(SWITCHES),):
        env = [*asks("0"), *(f"{name}=enabled" for name in names)]
        view = through(route, full, bundle_of("debian", probe(), env)).view
        assert_extra(view, [path for name in names for path in SWITCHES[name]])
        has_files = "NVIDIA_GDS" in names
        for path in ("/run/udev", "/etc/cufile.json"):
            assert (path in view.mounts) == has_files
            if has_files:
                assert {"ro", "nosuid", "nodev"} <= view.mounts[path].options
        if has_files:
            assert all(view.paths[path].content for path in FILES)


@pytest.mark.parametrize("route", ROUTES)
def test_switches_that_find_nothing(route: str, bare: Installation, bundle_of: Bundles) -> None:
    """The container starts with its GPU, and the log says what it does without."""
    env = [*asks("0"), *(f"{name}=enabled" for name in SWITCHES)]
    done = through(route, bare, bundle_of("debian", probe(), env))
    assert_extra(done.view, [])
    if route == "wrapper":
        assert done.log.count("GH1040") == len(SWITCHES)


def test_nothing_without_gpus(full: Installation, bundle_of: Bundles) -> None:
    """Extra requests without GPUs are ignored: config.json keeps its bytes."""
    env = ["NVIDIA_GDS=enabled", "NVIDIA_IMEX_CHANNELS=0", "NVIDIA_VISIBLE_DEVICES=void"]
    made = bundle_of("debian", probe(), env)
    before = made.file.read_bytes()
    assert full.edit(made).rc == 0
    assert made.file.read_bytes() == before


@pytest.mark.parametrize("route", ROUTES)
def test_policy_of_variables(
    route: str, full: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """If the variables of unprivileged containers do not apply, these do not either; if a
    refusal is to fail, it fails."""
    request = {"acceptEnvWhenUnprivileged": False}
    strict = full.apart(tmp_path / "strict", request=request)
    named = {"cdi.k8s.io/x": "nvidia.com/gpu=0"}
    env = ["NVIDIA_GDS=enabled", "NVIDIA_IMEX_CHANNELS=0"]
    made = bundle_of("debian", probe(), env, named)
    assert_extra(through(route, strict, made).view, [])
    failing = full.apart(tmp_path / "failing", request={**request, "onRefusal": "fail"})
    done = through(route, failing, bundle_of("debian", probe(), env, named))
    assert done.rc != 0
    assert "GH1041" in done.stderr


@pytest.mark.parametrize("route", ROUTES)
def test_administration_of_mig(route: str, full: Installation, bundle_of: Bundles) -> None:
    """A privileged container gets the node; an unprivileged one does not start."""
    env = [*asks("0"), "NVIDIA_MIG_CONFIG_DEVICES=all"]
    made = bundle_of("debian", probe(), env, process=PRIVILEGED)
    view = through(route, full, made).view
    assert_extra(view, [CAP + "1"])
    both = bundle_of(
        "debian", probe(), [*env, "NVIDIA_MIG_MONITOR_DEVICES=all"], process=PRIVILEGED
    )
    assert_extra(through(route, full, both).view, [CAP + "1", CAP + "2"])
    done = through(route, full, bundle_of("debian", probe(), env))
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


def named(source: str, name: str, bundled: Bundles, root: Path, **oci: Any) -> Bundle:
    """Return a bundle that requests the GPU 0 and a qualified name."""
    how = SOURCES[source]
    notes = {key: value.format(name=name) for key, value in how.get("annotations", {}).items()}
    env = [one.format(name=name) for one in how.get("env", ())]
    made = bundled(root, probe(), env, notes, **oci)
    if "mount" in how:
        config = made.config()
        for one in ("nvidia.com/gpu=0", name):
            place = how["mount"].format(path=one.replace("=", "/"))
            mount = {"destination": place, "source": "/dev/null", "type": "bind"}
            config["mounts"].append({**mount, "options": ["bind"]})
        made.write(config)
    return made


@pytest.mark.parametrize("source", SOURCES)
def test_by_name(
    source: str, full: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """Any source may name them; the administration of MIG is for the privileged by any."""
    taking = full.apart(tmp_path / "taking", request={"acceptVolumeMounts": True})
    root = root_of("debian")
    for name, paths in NAMED.items():
        is_closed = name.startswith("nvidia.com/mig=")
        oci: dict[str, Any] = {"process": PRIVILEGED} if is_closed else {}
        made = named(source, name, bundle_of, root, **oci)
        assert_extra(through("wrapper", taking, made).view, paths)
        if is_closed:
            done = through("wrapper", taking, named(source, name, bundle_of, root))
            assert done.rc != 0
            assert "GH1038" in done.stderr


def test_a_spec_of_the_node_counts(full: Installation, tmp_path: Path, bundle_of: Bundles) -> None:
    """What a site describes is what there is: another channel is refused with the way out."""
    own = full.apart(tmp_path / "own")
    own.generate("--mode=imex", "--device-id=3", output=own.specs / "imex.yaml")
    for channel, code in (("3", ""), ("0", "GH1042")):
        made = bundle_of("debian", probe(), [*asks("0"), f"NVIDIA_IMEX_CHANNELS={channel}"])
        done = through("wrapper", own, made)
        if code:
            assert done.rc != 0
            assert code in done.stderr
        else:
            assert_extra(done.view, [IMEX + "3"])


def test_podman_reads_the_specs(full: Installation, tmp_path: Path, root_of: Roots) -> None:
    """podman gives what generate-cdi describes, with plain runc."""
    own = full.apart(tmp_path / "own")
    for mode in ("imex", "gds", "mig"):
        own.generate(f"--mode={mode}", output=own.specs / f"{mode}.yaml")
    wanted = ("gpu=0", "imex-channel=3", "gds=all", "mig=monitor")
    options = [word for name in wanted for word in ("--device", f"nvidia.com/{name}")]
    integrations = Integrations(own, tmp_path)
    view = integrations.by_podman(root_of("debian"), probe(), options, runtime="runc").view
    assert_extra(view, [IMEX + "3", *SWITCHES["NVIDIA_GDS"], CAP + "2"])
    assert {view.paths[path].kind for path in FILES} == {"file"}


def test_come_and_go(full: Installation, tmp_path: Path) -> None:
    """A channel and a switch's devices are attached to a container that runs, and detached; the
    administration of MIG is attached to no container that is unprivileged."""
    mine = full.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks("0"))
    with wrapped(made, mine) as live:
        live.attach("nvidia.com/imex-channel=3", "nvidia.com/gds=all")
        tries = probe()[1:]
        view = live.view(tries)
        assert_extra(view, [IMEX + "3", *SWITCHES["NVIDIA_GDS"]])
        live.detach("nvidia.com/imex-channel=3")
        assert_extra(live.view(tries), SWITCHES["NVIDIA_GDS"])
        live.refused("GH1038", "attach", "--device", "nvidia.com/mig=config")
        live.refused("GH1037", "attach", "--device", "nvidia.com/imex-channel=5")


def test_the_administration_comes_and_goes(full: Installation, tmp_path: Path) -> None:
    """A privileged container that runs is given the nodes of the administration, and loses one."""
    mine = full.apart(tmp_path / "node")
    made = sleeping(tmp_path, env=asks("0"), process=PRIVILEGED)
    with wrapped(made, mine) as live:
        tries = probe()[1:]
        live.attach("nvidia.com/mig=config", "nvidia.com/mig=monitor")
        assert_extra(live.view(tries), [CAP + "1", CAP + "2"])
        live.detach("nvidia.com/mig=config")
        assert_extra(live.view(tries), [CAP + "2"])


def test_explain_says_what_counts(full: Installation, bundle_of: Bundles) -> None:
    """Each with its result and reason; the devices with what they give."""
    env = [*asks("0"), "NVIDIA_GDS=enabled", "NVIDIA_MOFED=1", "NVIDIA_IMEX_CHANNELS=3"]
    made = with_channels(bundle_of("debian", ["/probe"], env), "0")
    done = full.gpuhook("explain", str(made.path), "-o", "json")
    assert done.rc == 0, done
    (told,) = json.loads(done.stdout)["containers"]
    assert {one["where"]: one["result"] for one in told["extras"]} == {
        MOUNT: "refused",
        "NVIDIA_GDS": "won",
        "NVIDIA_MOFED": "ignored",
        "NVIDIA_IMEX_CHANNELS": "won",
    }
    nodes = {one["device"]: one["nodes"] for one in told["devices"]}
    assert nodes["nvidia.com/imex-channel=3"] == [IMEX + "3"]
    assert nodes["nvidia.com/gds=all"] == SWITCHES["NVIDIA_GDS"]
    assert [one["index"] for one in told["gpus"]] == ["0"]
    text = full.gpuhook("explain", str(made.path)).stdout
    assert "NVIDIA_GDS requests nvidia.com/gds=all in addition" in text
    assert "acceptVolumeMounts" in text
