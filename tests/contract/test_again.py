# SPDX-License-Identifier: Apache-2.0
"""Twice is as once; the old is gone after a change; many at once do not disturb each other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import bundles, engines, roots
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import (
    CONTROL,
    DRIVER_LIBRARIES,
    KIND,
    LIBRARIES,
    Installation,
    asks,
    installation,
)
from tests.contract.integrations import MKNOD, Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES, SECONDS, launcher
from tests.contract.views import questions
from tests.depth import depth
from tests.simulated.node import make_node

CROWD = depth(8, 32)
LOOKED_UP = ["/dlprobe", *DRIVER_LIBRARIES]
KEEPING = """
before=
for word; do
    [ "$before" = --bundle ] && cp "$word/config.json" "$KEPT"
    before=$word
done
exec runc "$@"
"""


def assert_once(config: dict[str, Any]) -> None:
    """Assert that no node, rule, mount, variable and hook occurs twice."""
    lists = {
        "devices": [d["path"] for d in config["linux"].get("devices", [])],
        "rules": [json.dumps(r, sort_keys=True) for r in config["linux"]["resources"]["devices"]],
        "mounts": [m["destination"] for m in config["mounts"]],
        "env": [e.partition("=")[0] for e in config["process"]["env"]],
        **{k: [json.dumps(h) for h in v] for k, v in config.get("hooks", {}).items()},
    }
    for name, values in lists.items():
        twice = {value for value in values if values.count(value) > 1}
        assert not twice, (name, twice)


def assert_tidy(directory: Path) -> None:
    """Assert that no temporary file is left in a directory."""
    assert [name for name in os.listdir(directory) if name.startswith(".")] == []


def test_create_twice(node8: Installation, root_of: Roots, bundle_of: Bundles) -> None:
    """The same bundle created twice ends with the same config.json, each edit once."""
    root = root_of("debian")
    bundle = bundle_of(root, ["/probe"], [*asks("1,2"), "KEPT=1"])
    assert node8.edit(bundle).rc == 0
    once, files = bundle.file.read_bytes(), roots.listing(root)
    for _ in range(2):
        assert node8.edit(bundle).rc == 0
        assert bundle.file.read_bytes() == once
        assert roots.listing(root) == files
    assert_once(bundle.config())
    assert_tidy(bundle.path)
    view = node8.run(bundle).view
    assert set(view.gpus()) == {*CONTROL, node8.device(1), node8.device(2)}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


@pytest.mark.parametrize("annotations", [None, {"io.gpuhook.record": "{}"}])
def test_create_again_without_state(
    annotations: dict[str, str] | None, apart: Installation, bundle_of: Bundles
) -> None:
    """A second create needs neither the ledger nor a hook to know the work of the first."""
    bundle = bundle_of("debian", ["/probe"], asks("1"), annotations)
    assert apart.edit(bundle).rc == 0
    once = bundle.file.read_bytes()
    assert not [name for name in bundle.config().get("hooks", {}) if name.startswith("create")]
    shutil.rmtree(apart.state)
    assert apart.edit(bundle).rc == 0
    assert bundle.file.read_bytes() == once
    assert bundle.config().get("annotations") == annotations


@ENGINES
def test_a_forged_record_restores_nothing(
    engine: str, node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """An annotation in the record's name changes no variable and no mount of the container."""
    forged = {"env": [["PLACE=/x", "LD_PRELOAD=/evil.so"], ["KEPT=1", None]], "mounts": ["/kept"]}
    annotations = {"io.gpuhook.record": json.dumps(forged)}
    root = root_of("debian")
    bundle = bundle_of(root, ["/probe"], [*asks("1"), "PLACE=/x", "KEPT=1"], annotations)
    bundle.mount(root / "etc", "/kept", "ro", "nodev", "bind")
    view = node8.run(bundle, engine).view
    assert set(view.gpus()) == {*CONTROL, node8.device(1)}
    assert (view.values("PLACE"), view.values("KEPT")) == (["/x"], ["1"])
    assert view.values("LD_PRELOAD") == []
    assert "/kept" in view.mounts


def test_the_second_request_counts(node8: Installation, bundle_of: Bundles) -> None:
    """A bundle whose variable an engine has changed meanwhile gets the new GPU and not the old."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    assert node8.edit(bundle).rc == 0
    config = bundle.config()
    env = config["process"]["env"]
    env[env.index("NVIDIA_VISIBLE_DEVICES=void")] = "NVIDIA_VISIBLE_DEVICES=4"
    bundle.write(config)
    view = node8.run(bundle).view
    assert set(view.gpus()) == {*CONTROL, node8.device(4)}


def kept_config(apart: Installation, place: Path, root: Path, *options: str) -> dict[str, Any]:
    """Run a container by podman with our wrapper and return the config.json that runc was given."""
    low = launcher(place / "runc", ["/bin/sh", "-c", KEEPING, "sh"], {"KEPT": str(place / "kept")})
    result = engines.podman(
        place / "podman",
        root,
        [
            "/probe",
            *questions(tries=[apart.number(1)], runs=[[*LOOKED_UP, "libnvidia-encode.so.1"]]),
        ],
        [*MKNOD, *options],
        apart.runtime,
        cdi=apart.specs,
        env=apart.on(str(low)),
        state=apart.state,
    )
    view = result.view
    assert apart.device(0) in view.gpus()
    assert view.tries == {apart.number(1): "EPERM"}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    # All that the engine has mounted, whatever the capabilities are.
    assert [n for n, found in view.runs[0].found().items() if "real" not in found] == []
    return dict(json.loads((place / "kept").read_text(encoding="utf-8")))


@pytest.mark.parametrize("variable", [[], ["--env", "NVIDIA_VISIBLE_DEVICES=0"]])
def test_an_engine_was_first(
    variable: list[str], apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """What podman has given by our spec is not given again: its hook is there once and does its
    work, and the wrapper enters the container in the ledger.
    """
    device = ["--device", f"{KIND}=0"]
    config = kept_config(apart, tmp_path, root_of("debian"), *device, *variable)
    assert_once(config)
    assert [hook["args"][:2] for hook in config["hooks"]["createContainer"]] == [
        ["gpuhook-hook", "apply"]
    ]
    entries, entry = apart.entries(), apart.entry()
    assert entry["route"] == "cdi+wrapper"
    assert apart.device(0) in entry["nodes"]
    assert apart.holders() == []
    assert apart.entries() == entries  # a reader removes nothing


def stale(made: Installation) -> None:
    """Let the spec say that it was made before the last boot, and stay so."""
    made.refuse_stale()
    text = made.spec.read_text(encoding="utf-8")
    assert "boot=" in text
    made.spec.write_text(text.replace("boot=", "boot=not-"), encoding="utf-8")


@pytest.mark.parametrize("integration", ["runc", "podman-runtime", "podman-cdi", "both"])
def test_stale_specs_are_refused(
    integration: str, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """A spec of another state of the host is refused, by the wrapper and by the hook."""
    stale(apart)
    enter = Integrations(apart, tmp_path)
    root = root_of("debian")
    before = roots.listing(root)
    if integration == "both":
        result = enter.by_podman(root, ["/probe"], ["--device", f"{KIND}=0"])
    else:
        result = enter.through(integration, root, ["/probe"])
    assert result.rc != 0
    assert "GH1120" in result.stderr + result.log
    assert "boot: was not-" in result.stderr + result.log
    assert apart.entries() == []
    if integration != "podman-cdi":
        assert [p for p in roots.listing(root) if p not in before and "nvidia" in p] == []


@pytest.mark.parametrize("integration", ["runc", "crun", "podman-runtime", "podman-cdi"])
@pytest.mark.parametrize("kind", roots.KINDS)
def test_start_twice(
    kind: str, integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """Started a second time, a container finds its root file system as after the first time."""
    root = root_of(kind)
    enter.through(integration, root, ["/probe"])
    once = roots.listing(root)
    enter.through(integration, root, ["/probe"])
    assert roots.listing(root) == once
    assert f"{LIBRARIES[1:]}/libcuda.so.1" in once
    assert not [path for path in once if ".gpuhook-" in path]


@pytest.mark.parametrize("same", [True, False])
def test_driver_upgrade(
    same: bool, node8: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """After a driver upgrade a container that is started again has nothing of the old driver: with
    the config.json of its first start, and with a new one.
    """
    old = installation(tmp_path / "old", "t4", node8.bindir)
    root = roots.with_ldconfig(root_of("debian"))
    asked = ["/probe", *questions(runs=[LOOKED_UP, ["/ldconfig", "-p"]])]
    bundle = bundle_of(root, asked, asks("0", "all"))
    was = str(old.node.node.driver.version)
    first = old.run(bundle).view
    assert first.runs[0].found()["libcuda.so.1"]["real"].endswith(f".{was}")

    facts = tmp_path / "facts.yaml"
    text = dump_file.text(dump_file.load("t4"), "yaml").replace(was, "590.10.01")
    facts.write_text(text, encoding="utf-8")
    new = replace(old, node=make_node(tmp_path / "new", str(facts)))
    new.generate()
    if not same:
        bundle = bundle_of(root, asked, asks("0", "all"))
    second = new.run(bundle).view
    assert {f["real"].rpartition(".so.")[2] for f in second.runs[0].found().values()} == {
        "590.10.01"
    }
    assert was not in second.runs[1].output
    links = [p for p in roots.listing(root) if (root / p).is_symlink()]
    assert not [p for p in links if was in str((root / p).readlink())]
    assert not [target for target in second.mounts if was in target]


@pytest.mark.parametrize("integration", ["runc", "crun", "podman-runtime", "podman-cdi"])
def test_read_only_root(
    integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """A container whose root is read-only to it gets its GPU and finds the driver."""
    root = root_of("debian")
    asked = ["/probe", *questions(runs=[LOOKED_UP, ["/bin/sh", "-c", ": > /etc/new"]])]
    if integration == "podman-cdi":
        options = ["--read-only", "--device", f"{KIND}=2"]
        result = enter.by_podman(root, asked, options, runtime="runc")
    elif integration == "podman-runtime":
        options = ["--read-only", "--env", asks("2")[0]]
        result = enter.by_podman(root, asked, options)
    else:
        made = bundles.bundle(enter.place / "b", root, asked, asks("2"))
        made.write({**made.config(), "root": {"path": str(root), "readonly": True}})
        result = node8.run(made, integration)
    view = result.view
    assert node8.device(2) in view.gpus()
    assert all("real" in found for found in view.runs[0].found().values())
    assert view.runs[1].rc != 0


def together(commands: list[list[str]], env: dict[str, str], place: Path) -> list[tuple[int, str]]:
    """Run commands at the same time; return (exit status, standard error) of each."""
    whole = {**os.environ, **env}
    started = []
    for number, command in enumerate(commands):
        # A file and no pipe: the containers that are made keep it open.
        with (place / f"stderr{number}").open("w") as errors:
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(
                command, env=whole, stdin=nothing, stdout=nothing, stderr=errors
            )
            started.append(process)
    ended = [process.wait(SECONDS) for process in started]
    texts = [(place / f"stderr{n}").read_text(encoding="utf-8") for n in range(len(commands))]
    return list(zip(ended, texts, strict=True))


@pytest.fixture
def crowd(apart: Installation, tmp_path: Path, bundle_of: Bundles) -> Iterator[list[Bundle]]:
    """Give bundles whose containers share a state directory of runc, removed in the end."""
    made = []
    for number in range(CROWD):
        root = roots.copy("distroless", tmp_path / f"root{number}")
        made.append(bundle_of(root, ["/probe"], asks(str(number % 8))))
    yield made
    for number in range(CROWD):
        command = ["runc", "--root", str(tmp_path / "runc"), "delete", "--force"]
        subprocess.run([*command, f"gpuhook-test-crowd-{number}"], check=False, capture_output=True)


def test_many_at_once(apart: Installation, crowd: list[Bundle], tmp_path: Path) -> None:
    """Containers created at once, with nothing compiled yet, all get what they requested."""
    shutil.rmtree(apart.state)
    command = [apart.runtime, "--root", str(tmp_path / "runc"), "create", "--bundle"]
    commands = [
        [*command, str(bundle.path), f"gpuhook-test-crowd-{number}"]
        for number, bundle in enumerate(crowd)
    ]
    assert [done for done in together(commands, apart.on("runc"), tmp_path) if done[0]] == []
    for number, bundle in enumerate(crowd):
        paths = {d["path"] for d in bundle.config()["linux"]["devices"]}
        assert paths == {*CONTROL, apart.device(number % 8)}
        assert_once(bundle.config())
        assert_tidy(bundle.path)
    assert len(apart.holders()) == len(crowd)
    assert not [p for p in apart.state.rglob("*") if p.name.startswith(".gpuhook-")]


def test_two_creates_of_one_bundle(
    node8: Installation, root_of: Roots, bundle_of: Bundles, tmp_path: Path
) -> None:
    """Two creates of one bundle at once end as one would."""
    root = root_of("debian")
    bundle = bundle_of(root, ["/probe"], asks("1"))
    before = bundle.file.read_bytes()
    assert node8.edit(bundle).rc == 0
    once, files = bundle.file.read_bytes(), roots.listing(root)
    for _ in range(8):
        bundle.file.write_bytes(before)
        command = [node8.runtime, "create", "--bundle", str(bundle.path)]
        commands = [[*command, f"gpuhook-test-{name}"] for name in "abcd"]
        done = together(commands, node8.on("/bin/true"), tmp_path)
        assert [status for status, _ in done] == [0] * 4, done
        assert bundle.file.read_bytes() == once
        assert roots.listing(root) == files
        assert_tidy(bundle.path)


def test_replicas_at_once(apart: Installation, bundle_of: Bundles) -> None:
    """Two replicas of one GPU are held by two containers, and `gpuhook ps` prints by which pods;
    it lists none of them when they are gone.
    """
    uuid = str(apart.gpu(0).uuid)
    with ExitStack() as stack:
        for number, kind in enumerate(("distroless", "musl")):
            annotations = {
                "io.kubernetes.cri.sandbox-name": f"pod-{number}",
                "io.kubernetes.cri.sandbox-namespace": "training",
                "io.kubernetes.cri.container-name": "main",
            }
            value = asks(f"{uuid}::{number}")
            bundle = bundle_of(kind, ["/probe"], value, annotations)
            container = stack.enter_context(apart.lifecycle(bundle))
            created = container.create()
            assert created.rc == 0, created
        held = apart.holders()
        assert [one["pod"] for one in held] == ["pod-0", "pod-1"]
        assert {one["namespace"] for one in held} == {"training"}
        assert {one["container"] for one in held} == {"main"}
        assert [one["replicas"] for one in held] == [[f"{uuid}::0"], [f"{uuid}::1"]]
        assert [one["gpus"] for one in held] == [[uuid], [uuid]]
        assert len(apart.entries()) == 2
    assert apart.holders() == []
    assert len(apart.entries()) == 2  # a reader removes nothing


def test_the_hook_keeps_the_ledger(apart: Installation, tmp_path: Path, root_of: Roots) -> None:
    """A container that an engine gave its GPU by our spec is in the ledger while it lives."""
    listed = tmp_path / "listed"
    listed.mkdir()
    enter = Integrations(apart, tmp_path)
    # It says something: podman would run a container again that says nothing.
    script = "until [ -e /listed/done ]; do sleep 0.05; done; echo listed"
    options = ["--device", f"{KIND}=GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"]
    options += ["--volume", f"{listed}:/listed"]
    command = f"""
        while [ -z "$(ls {apart.state}/containers 2>/dev/null)" ]; do sleep 0.05; done
        {apart.bindir}/gpuhook ps --recorded -o json > {listed}/ps; touch {listed}/done"""
    with subprocess.Popen(["sh", "-c", command], env={**os.environ, **apart.env}) as asking:
        result = enter.by_podman(
            root_of("debian"), ["/bin/sh", "-c", script], options, runtime="runc"
        )
        assert result.rc == 0, result
        assert asking.wait(SECONDS) == 0
    (held,) = json.loads((listed / "ps").read_text(encoding="utf-8"))["containers"]
    assert held["route"] == "cdi"
    assert apart.holders() == []
    assert len(apart.entries()) == 1  # a reader removes nothing


def test_the_spec_is_read_anew(apart: Installation, bundle_of: Bundles) -> None:
    """A changed CDI spec applies from the next container on."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    before = bundle.file.read_bytes()
    assert apart.edit(bundle).rc == 0
    spec = yaml.safe_load(apart.spec.read_text(encoding="utf-8"))
    spec["containerEdits"]["env"].append("ADDED=1")
    apart.spec.write_text(yaml.safe_dump(spec), encoding="utf-8")
    bundle.file.write_bytes(before)
    assert apart.edit(bundle).rc == 0
    assert "ADDED=1" in bundle.config()["process"]["env"]
