# SPDX-License-Identifier: Apache-2.0
"""Repeated creates and starts add nothing, changes replace old edits, parallel creates do not
interfere.
"""

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


def assert_no_duplicates(config: dict[str, Any]) -> None:
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


def assert_no_temporary_files(directory: Path) -> None:
    """Assert that no temporary file is left in a directory."""
    assert [name for name in os.listdir(directory) if name.startswith(".")] == []


def test_second_create_changes_nothing(
    node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """A second and third create leave config.json and the files as the first create did."""
    root = root_of("debian")
    bundle = bundle_of(root, ["/probe"], [*asks("1,2"), "KEPT=1"])
    assert node8.edit(bundle).rc == 0
    once, files = bundle.file.read_bytes(), roots.listing(root)
    for _ in range(2):
        assert node8.edit(bundle).rc == 0
        assert bundle.file.read_bytes() == once
        assert roots.listing(root) == files
    assert_no_duplicates(bundle.config())
    assert_no_temporary_files(bundle.path)
    view = node8.run(bundle).view
    assert set(view.gpus()) == {*CONTROL, node8.device(1), node8.device(2)}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


@pytest.mark.parametrize("annotations", [None, {"io.gpuhook.record": "{}"}])
def test_second_create_needs_no_state(
    annotations: dict[str, str] | None, apart: Installation, bundle_of: Bundles
) -> None:
    """A second create recognizes the edits of the first one without the ledger and hooks."""
    bundle = bundle_of("debian", ["/probe"], asks("1"), annotations)
    assert apart.edit(bundle).rc == 0
    once = bundle.file.read_bytes()
    assert not [name for name in bundle.config().get("hooks", {}) if name.startswith("create")]
    shutil.rmtree(apart.state)
    assert apart.edit(bundle).rc == 0
    assert bundle.file.read_bytes() == once
    assert bundle.config().get("annotations") == annotations


@ENGINES
def test_forged_record_annotation_changes_nothing(
    engine: str, node8: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """An annotation with the record's name changes no variable and no mount."""
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


def test_changed_variable_replaces_the_first_gpu(node8: Installation, bundle_of: Bundles) -> None:
    """If an engine changes the variable after a create, the next create assigns the new GPU."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    assert node8.edit(bundle).rc == 0
    config = bundle.config()
    env = config["process"]["env"]
    env[env.index("NVIDIA_VISIBLE_DEVICES=void")] = "NVIDIA_VISIBLE_DEVICES=4"
    bundle.write(config)
    view = node8.run(bundle).view
    assert set(view.gpus()) == {*CONTROL, node8.device(4)}


def config_after_podman(
    apart: Installation, place: Path, root: Path, *options: str
) -> dict[str, Any]:
    """Run a container by podman with gpuhook-runtime; return the config.json of runc."""
    runtime = launcher(
        place / "runc", ["/bin/sh", "-c", KEEPING, "sh"], {"KEPT": str(place / "kept")}
    )
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
        env=apart.on(str(runtime)),
        state=apart.state,
    )
    view = result.view
    assert apart.device(0) in view.gpus()
    assert view.tries == {apart.number(1): "EPERM"}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    # The engine mounts all libraries: a CDI spec knows no driver capabilities.
    assert [n for n, answer in view.runs[0].found().items() if "real" not in answer] == []
    return dict(json.loads((place / "kept").read_text(encoding="utf-8")))


@pytest.mark.parametrize("variable", [[], ["--env", "NVIDIA_VISIBLE_DEVICES=0"]])
def test_wrapper_adds_nothing_to_edits_of_podman(
    variable: list[str], apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """If podman applied the CDI spec, the wrapper adds no edit: each edit and the hook occur once,
    and the ledger has the container.
    """
    device = ["--device", f"{KIND}=0"]
    config = config_after_podman(apart, tmp_path, root_of("debian"), *device, *variable)
    assert_no_duplicates(config)
    assert [hook["args"][:2] for hook in config["hooks"]["createContainer"]] == [
        ["gpuhook-hook", "apply"]
    ]
    entries, entry = apart.entries(), apart.entry()
    assert entry["route"] == "cdi+wrapper"
    assert apart.device(0) in entry["nodes"]
    assert apart.holders() == []
    assert apart.entries() == entries  # a reader removes nothing


def make_spec_stale(target: Installation) -> None:
    """Change the boot id in the spec's fingerprint, and disable the regeneration of specs."""
    target.refuse_stale()
    text = target.spec.read_text(encoding="utf-8")
    assert "boot=" in text
    target.spec.write_text(text.replace("boot=", "boot=not-"), encoding="utf-8")


@pytest.mark.parametrize("integration", ["runc", "podman-runtime", "podman-cdi", "both"])
def test_stale_specs_are_refused(
    integration: str, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The wrapper and the hook refuse a spec with the fingerprint of another state of the host."""
    make_spec_stale(apart)
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
def test_second_start_leaves_the_same_files(
    kind: str, integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """A second start leaves the same root file system as the first start."""
    root = root_of(kind)
    enter.through(integration, root, ["/probe"])
    once = roots.listing(root)
    enter.through(integration, root, ["/probe"])
    assert roots.listing(root) == once
    assert f"{LIBRARIES[1:]}/libcuda.so.1" in once
    assert not [path for path in once if ".gpuhook-" in path]


@pytest.mark.parametrize("same", [True, False])
def test_driver_upgrade_leaves_no_old_files(
    same: bool, node8: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """After a driver upgrade, a container that starts again has no old driver file, with its old
    config.json and with a new one.
    """
    old = installation(tmp_path / "old", "t4", node8.bindir)
    root = roots.with_ldconfig(root_of("debian"))
    command = ["/probe", *questions(runs=[LOOKED_UP, ["/ldconfig", "-p"]])]
    bundle = bundle_of(root, command, asks("0", "all"))
    old_version = str(old.node.node.driver.version)
    first = old.run(bundle).view
    assert first.runs[0].found()["libcuda.so.1"]["real"].endswith(f".{old_version}")

    facts = tmp_path / "facts.yaml"
    text = dump_file.text(dump_file.load("t4"), "yaml").replace(old_version, "590.10.01")
    facts.write_text(text, encoding="utf-8")
    new = replace(old, node=make_node(tmp_path / "new", str(facts)))
    new.generate()
    if not same:
        bundle = bundle_of(root, command, asks("0", "all"))
    second = new.run(bundle).view
    assert {f["real"].rpartition(".so.")[2] for f in second.runs[0].found().values()} == {
        "590.10.01"
    }
    assert old_version not in second.runs[1].output
    links = [p for p in roots.listing(root) if (root / p).is_symlink()]
    assert not [p for p in links if old_version in str((root / p).readlink())]
    assert not [target for target in second.mounts if old_version in target]


@pytest.mark.parametrize("integration", ["runc", "crun", "podman-runtime", "podman-cdi"])
def test_read_only_root_gets_gpu_and_driver(
    integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """A container with a read-only root file system has its GPU and finds the driver."""
    root = root_of("debian")
    command = ["/probe", *questions(runs=[LOOKED_UP, ["/bin/sh", "-c", ": > /etc/new"]])]
    if integration == "podman-cdi":
        options = ["--read-only", "--device", f"{KIND}=2"]
        result = enter.by_podman(root, command, options, runtime="runc")
    elif integration == "podman-runtime":
        options = ["--read-only", "--env", asks("2")[0]]
        result = enter.by_podman(root, command, options)
    else:
        made = bundles.bundle(enter.place / "b", root, command, asks("2"))
        made.write({**made.config(), "root": {"path": str(root), "readonly": True}})
        result = node8.run(made, integration)
    view = result.view
    assert node8.device(2) in view.gpus()
    assert all("real" in answer for answer in view.runs[0].found().values())
    assert view.runs[1].rc != 0


def run_in_parallel(
    commands: list[list[str]], env: dict[str, str], place: Path
) -> list[tuple[int, str]]:
    """Run commands at the same time; return (exit status, standard error) of each."""
    environment = {**os.environ, **env}
    started = []
    for number, command in enumerate(commands):
        # A file, not a pipe: the created containers keep it open.
        with (place / f"stderr{number}").open("w") as errors:
            null = subprocess.DEVNULL
            process = subprocess.Popen(
                command, env=environment, stdin=null, stdout=null, stderr=errors
            )
            started.append(process)
    ended = [process.wait(SECONDS) for process in started]
    texts = [(place / f"stderr{n}").read_text(encoding="utf-8") for n in range(len(commands))]
    return list(zip(ended, texts, strict=True))


@pytest.fixture
def crowd_bundles(
    apart: Installation, tmp_path: Path, bundle_of: Bundles
) -> Iterator[list[Bundle]]:
    """Yield bundles of containers that share a state directory of runc; delete them."""
    made = []
    for number in range(CROWD):
        root = roots.copy("distroless", tmp_path / f"root{number}")
        made.append(bundle_of(root, ["/probe"], asks(str(number % 8))))
    yield made
    for number in range(CROWD):
        command = ["runc", "--root", str(tmp_path / "runc"), "delete", "--force"]
        subprocess.run([*command, f"gpuhook-test-crowd-{number}"], check=False, capture_output=True)


def test_parallel_creates_without_compiled_specs(
    apart: Installation, crowd_bundles: list[Bundle], tmp_path: Path
) -> None:
    """Containers that are created in parallel, without a compiled spec, have their GPUs."""
    shutil.rmtree(apart.state)
    command = [apart.runtime, "--root", str(tmp_path / "runc"), "create", "--bundle"]
    commands = [
        [*command, str(bundle.path), f"gpuhook-test-crowd-{number}"]
        for number, bundle in enumerate(crowd_bundles)
    ]
    assert [done for done in run_in_parallel(commands, apart.on("runc"), tmp_path) if done[0]] == []
    for number, bundle in enumerate(crowd_bundles):
        paths = {d["path"] for d in bundle.config()["linux"]["devices"]}
        assert paths == {*CONTROL, apart.device(number % 8)}
        assert_no_duplicates(bundle.config())
        assert_no_temporary_files(bundle.path)
    assert len(apart.holders()) == len(crowd_bundles)
    assert not [p for p in apart.state.rglob("*") if p.name.startswith(".gpuhook-")]


def test_parallel_creates_of_one_bundle(
    node8: Installation, root_of: Roots, bundle_of: Bundles, tmp_path: Path
) -> None:
    """Four parallel creates of one bundle have the same result as one create."""
    root = root_of("debian")
    bundle = bundle_of(root, ["/probe"], asks("1"))
    before = bundle.file.read_bytes()
    assert node8.edit(bundle).rc == 0
    once, files = bundle.file.read_bytes(), roots.listing(root)
    for _ in range(8):
        bundle.file.write_bytes(before)
        command = [node8.runtime, "create", "--bundle", str(bundle.path)]
        commands = [[*command, f"gpuhook-test-{name}"] for name in "abcd"]
        done = run_in_parallel(commands, node8.on("/bin/true"), tmp_path)
        assert [status for status, _ in done] == [0] * 4, done
        assert bundle.file.read_bytes() == once
        assert roots.listing(root) == files
        assert_no_temporary_files(bundle.path)


def test_ps_lists_two_replicas_of_one_gpu(apart: Installation, bundle_of: Bundles) -> None:
    """`gpuhook ps` lists two containers with replicas of one GPU, and none after they end."""
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
        holders = apart.holders()
        assert [one["pod"] for one in holders] == ["pod-0", "pod-1"]
        assert {one["namespace"] for one in holders} == {"training"}
        assert {one["container"] for one in holders} == {"main"}
        assert [one["replicas"] for one in holders] == [[f"{uuid}::0"], [f"{uuid}::1"]]
        assert [one["gpus"] for one in holders] == [[uuid], [uuid]]
        assert len(apart.entries()) == 2
    assert apart.holders() == []
    assert len(apart.entries()) == 2  # a reader removes nothing


def test_hook_enters_container_of_podman_in_ledger(
    apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """While a container of podman with a CDI device runs, the ledger has it."""
    listed = tmp_path / "listed"
    listed.mkdir()
    enter = Integrations(apart, tmp_path)
    # It prints a word: by_podman() runs a container again that prints nothing.
    script = "until [ -e /listed/done ]; do sleep 0.05; done; echo listed"
    options = ["--device", f"{KIND}=GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"]
    options += ["--volume", f"{listed}:/listed"]
    command = f"""
        while [ -z "$(ls {apart.state}/containers 2>/dev/null)" ]; do sleep 0.05; done
        {apart.bindir}/gpuhook ps --recorded -o json > {listed}/ps; touch {listed}/done"""
    with subprocess.Popen(["sh", "-c", command], env={**os.environ, **apart.env}) as reader:
        result = enter.by_podman(
            root_of("debian"), ["/bin/sh", "-c", script], options, runtime="runc"
        )
        assert result.rc == 0, result
        assert reader.wait(SECONDS) == 0
    (holder,) = json.loads((listed / "ps").read_text(encoding="utf-8"))["containers"]
    assert holder["route"] == "cdi"
    assert apart.holders() == []
    assert len(apart.entries()) == 1  # a reader removes nothing


def test_changed_spec_applies_to_next_create(apart: Installation, bundle_of: Bundles) -> None:
    """A changed CDI spec applies to the next container."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    before = bundle.file.read_bytes()
    assert apart.edit(bundle).rc == 0
    spec = yaml.safe_load(apart.spec.read_text(encoding="utf-8"))
    spec["containerEdits"]["env"].append("ADDED=1")
    apart.spec.write_text(yaml.safe_dump(spec), encoding="utf-8")
    bundle.file.write_bytes(before)
    assert apart.edit(bundle).rc == 0
    assert "ADDED=1" in bundle.config()["process"]["env"]
