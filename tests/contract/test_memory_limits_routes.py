# SPDX-License-Identifier: Apache-2.0
"""Memory limits by the CDI hook and the prestart hook, without the wrapper or in addition to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuhook.request.memory_request import MIB
from tests.contract import bundles
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks
from tests.contract.limiting import (
    LIMIT,
    REQUEST,
    apply_cdi_spec,
    enforced_limits,
    entry,
    grant,
    hooks,
    uuid,
    variables,
)
from tests.contract.live import WAIT, prestart, started, wrapped
from tests.contract.runtimes import ENGINES, run
from tests.contract.test_user_namespace import let_through, mapped
from tests.simulated import stub_limits

WITH_AND_WITHOUT_NAMESPACE = pytest.mark.parametrize(
    "has_namespace", [False, True], ids=["host", "own-namespace"]
)


def with_cgroup_namespace(made: Bundle) -> Bundle:
    """Add a cgroup namespace to the container, as engines do on cgroup v2."""
    config = made.config()
    config["linux"]["namespaces"].append({"type": "cgroup"})
    made.write(config)
    return made


@ENGINES
@WITH_AND_WITHOUT_NAMESPACE
def test_cdi_hook_sets_the_limit(
    engine: str, has_namespace: bool, mine: Installation, bundle_of: Bundles
) -> None:
    """The hook runs in the container's namespaces and cgroup."""
    made = apply_cdi_spec(mine, bundle_of("debian", WAIT), "2")
    grant(mine, made, 2, 4096, 1024)
    if has_namespace:
        with_cgroup_namespace(made)
    with started(made, mine, engine, "v2", *mine.command_with_state(engine)) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 1024)}
        recorded = entry(mine)
    assert recorded["route"] == "cdi"
    (record,) = recorded["memory"]
    assert (record["by"], record["hard"]) == ("driver", 4096 * MIB)
    assert record["cgroups"] == ["/sys/fs/cgroup" + made.config()["linux"]["cgroupsPath"]]


@ENGINES
@pytest.mark.parametrize("is_asked", [False, True])
def test_cdi_hook_applies_the_on_failure_policy(
    engine: str, is_asked: bool, mine: Installation, bundle_of: Bundles
) -> None:
    """The driver refuses the limit: only a requested one stops the container."""
    stub_limits.fail_setting(mine.node, uuid(mine, 2), stub_limits.NO_PERMISSION)
    made = apply_cdi_spec(mine, bundle_of("debian", ["/bin/echo", "runs"]), "2")
    grant(mine, made, 2, 4096, 1024, is_asked=is_asked)
    result = run(made, mine.command_with_state(engine), engine, "v2")
    assert result.stdout == ("" if is_asked else "runs\n")
    assert "GH1251" in (mine.state / "hook.log").read_text(encoding="utf-8")


@ENGINES
def test_cdi_hook_in_a_user_namespace_is_refused(
    engine: str, mine: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """The hook is not the host's root there, and cannot set a limit: GH1315."""
    let_through(Path(mine.node.driver_root) / "any")
    let_through(mine.bindir / "any")
    base = bundle_of("debian", ["/bin/echo", "runs"], [f"{LIMIT}=1024"])
    made = mapped(apply_cdi_spec(mine, base, "2"))
    result = run(made, mine.command_with_state(engine, tmp_path / "dev"), engine, "v2")
    assert result.rc != 0
    if (
        engine == "runc"
    ):  # crun discards a hook's output, and the hook cannot write to the host's log
        assert "GH1315" in result.stderr + result.log


@ENGINES
def test_cdi_hook_in_a_shared_cgroup_is_refused(
    engine: str, mine: Installation, bundle_of: Bundles
) -> None:
    """Another container runs in the cgroup of the hook's container."""
    made = apply_cdi_spec(mine, bundle_of("debian", ["/bin/echo", "runs"], [f"{LIMIT}=1024"]), "2")
    neighbor = bundle_of(made.root, WAIT)
    config = made.config()
    config["linux"]["cgroupsPath"] = neighbor.config()["linux"]["cgroupsPath"]
    made.write(config)
    with started(neighbor, mine, "runc", "v2", "runc") as live:
        result = run(made, mine.command_with_state(engine), engine, "v2")
        if engine == "runc":  # crun kills all processes in the cgroup of a container that failed
            assert enforced_limits(mine, live.pid) == {}
    assert result.stdout == ""
    assert "GH1314" in (mine.state / "hook.log").read_text(encoding="utf-8")


@ENGINES
@WITH_AND_WITHOUT_NAMESPACE
@pytest.mark.parametrize("stage", ["prestart", "createRuntime"])
def test_prestart_hook_sets_the_limit(
    stage: str, engine: str, has_namespace: bool, mine: Installation, bundle_of: Bundles
) -> None:
    """The hook that injects the GPU into a created container also limits it."""
    made = bundle_of(
        "debian", WAIT, [*asks("2"), f"{LIMIT}=3000"], hooks=prestart(mine, stage=stage)
    )
    grant(mine, made, 2, 4096, 1024)
    if has_namespace:
        with_cgroup_namespace(made)
    with started(made, mine, engine, "v2", engine) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (3000, 1024)}
        recorded = entry(mine)
    assert recorded["route"] == "prestart"
    (record,) = recorded["memory"]
    assert (record["by"], record["asked"]) == ("driver", True)


FORGED = {"io.gpuhook.record": "{}"}


@pytest.mark.parametrize("annotations", [None, FORGED], ids=["plain", "forged"])
@pytest.mark.parametrize("env", [asks("void"), asks(""), []], ids=["void", "empty", "unset"])
@pytest.mark.parametrize("route", ["wrapper", "prestart"])
def test_limit_of_a_container_without_a_request(
    route: str,
    env: list[str],
    annotations: dict[str, str] | None,
    mine: Installation,
    bundle_of: Bundles,
) -> None:
    """The device plugin assigns nodes and grants memory; the pod's variable requests no GPU.

    An annotation with the name of gpuhook's record does not disable the hook.
    """
    hooks_of = {"hooks": prestart(mine)} if route == "prestart" else {}
    made = bundle_of("debian", WAIT, env, annotations, **hooks_of)
    grant(mine, made, 2, 1024, 512)
    config = made.config()
    minor = int(str(mine.gpu(2).minor))
    config["linux"]["devices"] = [bundles.device(mine.device(2), 195, minor)]
    made.write(config)
    runtime = "runc" if route == "prestart" else mine.runtime
    with started(made, mine, "runc", "v2", runtime) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 512)}
        recorded = entry(mine)
    assert [one["by"] for one in recorded["memory"]] == ["driver"]
    assert recorded["nodes"] == [mine.device(2)]


def test_invalid_settings_do_not_stop_a_container_without_a_gpu(
    mine: Installation, bundle_of: Bundles
) -> None:
    """The prestart hook and the wrapper ignore invalid variables and settings there."""
    mine.config.write_text("limits: {onFailure: maybe}", encoding="utf-8")
    env = [*asks("void"), f"{LIMIT}=4Gi"]
    made = bundle_of("debian", ["/bin/echo", "runs"], env, hooks=prestart(mine))
    grant(mine, made, 2, 1024, 512)
    assert run(made, ["runc"], "runc", "v2").stdout == "runs\n"
    assert mine.run(made, "runc", "v2").stdout == "runs\n"
    made = bundle_of(made.root, ["/bin/true"], [*asks("2"), f"{LIMIT}=4096"])
    result = mine.run(made, "runc", "v2")
    assert "GH1530" in result.stderr
    assert "onFailure" in result.stderr


@pytest.mark.parametrize("policy", ["auto", "start"])
def test_prestart_hook_on_cgroup_v1(policy: str, mine: Installation, bundle_of: Bundles) -> None:
    """limits.onFailure decides whether the container starts."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("this machine has cgroup v2")
    mine.settings["limits"] = {"onFailure": policy}
    mine.configure()
    env = [*asks("2"), f"{LIMIT}=1024"]
    made = bundle_of("debian", ["/bin/echo", "runs"], env, hooks=prestart(mine))
    result = run(made, ["runc"])
    assert result.stdout == ("runs\n" if policy == "start" else "")
    assert "GH1312" in (mine.state / "hook.log").read_text(encoding="utf-8")


@ENGINES
def test_wrapper_sets_the_limit_after_cdi(
    engine: str, mine: Installation, bundle_of: Bundles
) -> None:
    """If CDI and the wrapper are used, only the wrapper's hook sets the limit."""
    made = apply_cdi_spec(mine, bundle_of("debian", WAIT, [f"{LIMIT}=9999"]), "2")
    grant(mine, made, 2, 4096, 1024)
    for _ in range(2):
        with started(made, mine, engine, "v2", *mine.command_with_state()) as live:
            assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (4096, 1024)}
            recorded = entry(mine)
        assert recorded["route"] == "cdi+wrapper"
        assert [one["by"] for one in recorded["memory"]] == ["driver"]
        assert len(hooks(made)) == 1
        assert variables(made)[LIMIT] == "4096"
        assert variables(made)[REQUEST] == "1024"
    config = made.config()
    config["mounts"] = [m for m in config["mounts"] if "gpuhook" not in m["destination"]]
    made.write(config)
    with started(made, mine, engine, "v2", *mine.command_with_state()) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (9999, 0)}


@ENGINES
def test_wrapper_sets_the_limit_in_a_user_namespace(
    engine: str, mine: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """The wrapper's hook runs outside of the namespace; the CDI hook has nothing to do."""
    let_through(Path(mine.node.driver_root) / "any")
    let_through(mine.bindir / "any")
    base = bundle_of("debian", WAIT, [f"{LIMIT}=1024"])
    made = mapped(apply_cdi_spec(mine, base, "2"))
    command = mine.command_with_state(dev=tmp_path / "dev")
    with started(made, mine, engine, "v2", *command) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 0)}


def test_wrapper_recognizes_a_grant_without_cdi_hooks(
    mine: Installation, bundle_of: Bundles
) -> None:
    """Only the plugin's grant in config.json refers to gpuhook."""
    made = apply_cdi_spec(mine, bundle_of("debian", WAIT), "2")
    config = made.config()
    del config["hooks"]
    config["process"]["env"] = [e for e in config["process"]["env"] if "NVIDIA" not in e]
    made.write(config)
    grant(mine, made, 2, 1024, 1024)
    for _ in range(2):
        with started(made, mine, "runc", "v2", *mine.command_with_state()) as live:
            assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 1024)}
            assert entry(mine)["memory"][0]["by"] == "driver"
        assert len(hooks(made)) == 1


def test_wrapper_keeps_config_json_without_a_limit(mine: Installation, bundle_of: Bundles) -> None:
    """A container that got its GPU by CDI and has no limit keeps every byte."""
    made = apply_cdi_spec(mine, bundle_of("debian", ["/bin/echo", "runs"]), "2")
    raw = made.file.read_bytes()
    result = run(made, mine.command_with_state(), "runc", "v2", mine.on("runc"))
    assert result.stdout == "runs\n"
    assert made.file.read_bytes() == raw


@ENGINES
def test_rootless_container_with_a_limit_is_refused(
    engine: str, mine: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """Only the host's root can set a limit: GH1315."""
    made = bundle_of(
        "debian",
        ["/bin/echo", "runs"],
        [*asks("2"), f"{LIMIT}=1024"],
        linux={"resources": None, "cgroupsPath": None},
    )
    config = made.config()
    dropped = ["/sys", "/sys/fs/cgroup", "/dev/mqueue", "/dev/pts"]
    config["mounts"] = [m for m in config["mounts"] if m["destination"] not in dropped]
    config["linux"]["namespaces"] = [{"type": name} for name in ("pid", "ipc", "uts", "mount")]
    made.write(config)
    around = mine.command_with_state("unshare", tmp_path / "dev")
    around += ["--user", "--map-root-user", "--mount"]
    options = {"runc": ["--rootless=true"], "crun": ["--cgroup-manager=disabled"]}[engine]
    command = [*around, mine.runtime, *options]
    result = run(made, command, engine, "v2", mine.on(engine))
    assert result.rc != 0, result
    assert "GH1315" in (mine.state / "hook.log").read_text(encoding="utf-8")


@ENGINES
@pytest.mark.parametrize("route", ["wrapper", "prestart"])
def test_forged_record_does_not_remove_the_limit(
    route: str, engine: str, mine: Installation, bundle_of: Bundles
) -> None:
    """An annotation in the form of gpuhook's record does not disable the limit.

    The annotation `bundle` does not lead the launcher to another config.json either.
    """
    limit = f"{LIMIT}=1000"
    forged = {"env": [[limit, None]], "mounts": ["/proc"], "devices": ["/dev/null"], "rules": []}
    other = bundle_of("distroless")
    annotations = {"bundle": str(other.path), "io.gpuhook.record": json.dumps(forged)}
    hooks_of = {"hooks": prestart(mine)} if route == "prestart" else {}
    made = bundle_of("debian", WAIT, [*asks("2"), limit], annotations, **hooks_of)
    runtime = engine if route == "prestart" else mine.runtime
    with started(made, mine, engine, "v2", runtime) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1000, 0)}
        assert entry(mine)["route"] == route
    assert limit in made.config()["process"]["env"]


def test_forged_mark_of_the_wrapper_does_not_disable_the_hook(
    mine: Installation, bundle_of: Bundles
) -> None:
    """The annotation and the variable are those that the wrapper writes."""
    base = bundle_of(
        "debian", WAIT, ["GPUHOOK_HOOK=limit"], annotations={"io.gpuhook.record": "{}"}
    )
    made = grant(mine, apply_cdi_spec(mine, base, "2"), 2, 1024, 1024)
    with started(made, mine, "runc", "v2", *mine.command_with_state("runc")) as live:
        assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 1024)}


def test_library_of_a_volume_is_not_loaded_on_the_host(
    mine: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """A pod's volume has the name of the driver's library."""
    evil = tmp_path / "evil.so"
    evil.write_text("not a library", encoding="utf-8")
    made = apply_cdi_spec(mine, bundle_of("debian", WAIT), "2")
    grant(mine, made, 2, 1024, 1024)
    config = made.config()
    for mount in config["mounts"]:
        if "libnvidia-ml.so" in mount["destination"]:
            mount["source"] = str(evil)
    made.write(config)
    for runtime in ("runc", mine.runtime):
        with started(made, mine, "runc", "v2", *mine.command_with_state(runtime)) as live:
            assert enforced_limits(mine, live.pid) == {uuid(mine, 2): (1024, 1024)}
        assert str(evil) not in str(hooks(made))


def test_limit_is_set_on_the_scope_only(mine: Installation, bundle_of: Bundles) -> None:
    """crun's cgroup is in a scope, which belongs to the container as well.

    A second limit on the inner cgroup would apply in addition to that of the scope.
    """
    made = bundle_of("debian", WAIT, [*asks("2"), f"{LIMIT}=1024"])
    config = made.config()
    config["linux"]["cgroupsPath"] = f"/{bundles.CGROUP}/limits-{unique_name()}.scope/container"
    made.write(config)
    with wrapped(made, mine, "runc", "v2") as live:
        (record,) = entry(mine)["memory"]
        name = config["linux"]["cgroupsPath"]
        scope = "/sys/fs/cgroup" + name.rpartition("/")[0]
        assert record["cgroups"] == [scope]
        assert enforced_limits(mine, live.pid) == {}
        (limit,) = [one for one in stub_limits.recorded(mine.node) if one.path == scope]
        assert limit.hard == 1024 * MIB
        shown = json.loads(live.gpuhook("limits", live.id, "-o", "json", name="show").stdout)
        (gpu,) = shown["containers"][0]["gpus"]
        assert (gpu["agrees"], gpu["driver"]["limit"]) == (True, 1024 * MIB)
        live.gpuhook("limits", live.id, "--limit", "2Gi", name="set")
        assert enforced_limits(mine, live.pid) == {}
        (limit,) = [one for one in stub_limits.recorded(mine.node) if one.path == scope]
        assert limit.hard == 2048 * MIB


def unique_name() -> str:
    """Return a name that no other test has."""
    from uuid import uuid4

    return uuid4().hex[:8]
