# SPDX-License-Identifier: Apache-2.0
"""The low-level runtimes without gpuhook: what the other tests rely on."""

from __future__ import annotations

from pathlib import Path

from tests.contract.bundles import PATH, Bundles, device, rule
from tests.contract.roots import Roots
from tests.contract.runtimes import EVERY, launcher, lifecycle, run
from tests.contract.views import questions
from tests.waiting import eventually

DENY = {"allow": False, "access": "rwm"}


@EVERY
def test_device_rules_restrict_access(engine: str, cgroup: str, bundle_of: Bundles) -> None:
    """A node needs a rule to be opened; without a node and a rule there is no access."""
    bundle = bundle_of(
        "debian",
        ["/probe", *questions(tries=["195:7"])],
        linux={
            "devices": [device("/dev/nvidia0", 195, 0), device("/dev/nvidia1", 195, 1)],
            "resources": {"devices": [DENY, rule(195, 0)]},
        },
    )
    view = run(bundle, [engine], engine, cgroup).view
    gpus = view.gpus()
    assert (gpus["/dev/nvidia0"].major, gpus["/dev/nvidia0"].mode) == (195, 0o666)
    assert gpus["/dev/nvidia0"].allowed
    assert gpus["/dev/nvidia1"].open == "EPERM"
    assert view.tries == {"195:7": "EPERM"}


@EVERY
def test_probe_prints_the_container(
    engine: str, cgroup: str, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """The probe prints environment, mounts with options, links, contents and groups."""
    shown = tmp_path / "shown"
    shown.write_bytes(b"a\0\xff\n")
    root = root_of("distroless")
    (root / "link").symlink_to("etc/shown")
    bundle = bundle_of(
        root,
        ["/probe", *questions("/link", "/nowhere", "/etc")],
        env=["A=b=c"],
        process={"user": {"uid": 0, "gid": 0, "additionalGids": [44]}},
    )
    bundle.mount(shown, "/etc/shown")
    view = run(bundle, [engine], engine, cgroup).view
    assert view.env[0] == PATH
    assert view.values("A") == ["b=c"]
    assert view.groups == (44,)
    assert {"ro", "nosuid", "nodev"} <= view.mounts["/etc/shown"].options
    assert (view.paths["/link"].target, view.paths["/link"].content) == ("etc/shown", b"a\0\xff\n")
    assert view.paths["/nowhere"].kind == "missing"
    assert "shown" in view.paths["/etc"].entries


@EVERY
def test_lifecycle_commands(engine: str, cgroup: str, bundle_of: Bundles) -> None:
    """Create, start, exec, state, kill and delete work one after another."""
    script = "echo begun; exec sleep 60"
    bundle = bundle_of("debian", ["/bin/sh", "-c", script])
    with lifecycle(bundle, [engine], engine, cgroup) as container:
        created = container.create()
        assert created.rc == 0, created
        assert '"created"' in container.call("state").stdout.replace(" ", "")
        assert container.call("start").rc == 0
        assert container.call("exec", "/probe").view.uid == 0
        eventually(lambda: container.output == "begun\n")
        assert container.call("kill", "KILL").rc == 0
        assert container.delete().rc == 0
        assert container.call("state").rc != 0


def test_failed_start_is_reported(bundle_of: Bundles) -> None:
    """The reason is in the log and on standard error."""
    result = run(bundle_of("distroless", ["/bin/none"]))
    assert result.rc != 0
    assert "/bin/none" in result.stderr
    assert "/bin/none" in result.log


def test_launcher_adds_variables(tmp_path: Path, bundle_of: Bundles) -> None:
    """The launcher runs a command with arguments and variables."""
    program = launcher(tmp_path / "told", ["/bin/sh", "-c", 'echo "$IT $0 $1"'], {"IT": "isn't"})
    result = run(bundle_of("distroless"), [str(program)])
    assert result.stdout.startswith("isn't --root ")
