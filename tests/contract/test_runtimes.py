# SPDX-License-Identifier: Apache-2.0
"""The low-level runtimes alone, as the harness drives them: what the other tests stand on."""

from __future__ import annotations

from pathlib import Path

from tests.contract.bundles import PATH, Bundles, device, rule
from tests.contract.roots import Roots
from tests.contract.runtimes import EVERY, launcher, lifecycle, run
from tests.contract.views import questions
from tests.waiting import eventually

DENY = {"allow": False, "access": "rwm"}


@EVERY
def test_device_rules_decide(engine: str, cgroup: str, bundle_of: Bundles) -> None:
    """A node with a rule may be opened, a node without one and a device without node may not."""
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
def test_view(engine: str, cgroup: str, tmp_path: Path, root_of: Roots, bundle_of: Bundles) -> None:
    """The probe tells env, mounts with their flags, links, contents and groups as they are."""
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
def test_life_of_a_container(engine: str, cgroup: str, bundle_of: Bundles) -> None:
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


def test_a_failed_start_is_told(bundle_of: Bundles) -> None:
    """A container that cannot start has its reason in the log and on standard error."""
    result = run(bundle_of("distroless", ["/bin/none"]))
    assert result.rc != 0
    assert "/bin/none" in result.stderr
    assert "/bin/none" in result.log


def test_launcher_adds_variables(tmp_path: Path, bundle_of: Bundles) -> None:
    """A launcher stands for a command with its own arguments and variables."""
    told = launcher(tmp_path / "told", ["/bin/sh", "-c", 'echo "$IT $0 $1"'], {"IT": "isn't"})
    result = run(bundle_of("distroless"), [str(told)])
    assert result.stdout.startswith("isn't --root ")
