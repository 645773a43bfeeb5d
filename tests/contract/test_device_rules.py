# SPDX-License-Identifier: Apache-2.0
"""Device rules of running containers: printed, changed, and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.bundles import Bundle, Bundles, rule
from tests.contract.device_side import told
from tests.contract.runtimes import ENGINES, EVERY, Container, lifecycle
from tests.contract.views import view

RULES = [
    {"allow": False, "access": "rwm"},
    rule(195, 0, "rw"),
    rule(195, 1, "r"),
    rule(10, 229, "r"),
    {"allow": True, "type": "c", "major": 510, "access": "rwm"},
]
ASKED = [
    *(f"1:{minor}" for minor in (1, 2, 3, 4, 5, 7, 8, 9, 11)),
    *("5:0", "5:1", "5:2", "5:3", "10:200", "10:229", "10:230", "136:0"),
    *("195:0", "195:1", "195:2", "195:255", "509:0", "510:0", "510:255", "511:0"),
]
CHANGE = "rules.change(allow('c 195:7 rw', 'c 195:255 rw'))"
DROP = "rules.drop(allow('c 195:7 rw', 'c 195:255 rw'))"
DESCRIBED = "described(rules)"


@contextmanager
def running(bundle: Bundle, engine: str, cgroup: str) -> Iterator[Container]:
    """Give a container that runs until it is deleted."""
    with lifecycle(bundle, [engine], engine, cgroup) as container:
        container.start()
        yield container


def opened(container: Container, *devices: str) -> dict[str, str]:
    """Return what open(2) says of devices from inside the container."""
    tries = [word for device in devices for word in ("--try", device)]
    done = container.call("exec", "/probe", *tries)
    assert done.rc == 0, done
    return view(done.stdout).tries


@pytest.fixture
def sleeping(bundle_of: Bundles) -> Callable[[list[dict[str, Any]]], Bundle]:
    """Return a function that makes the bundle of a container that has time, with these rules."""

    def made(rules: list[dict[str, Any]]) -> Bundle:
        resources = {"resources": {"devices": rules}}
        return bundle_of("debian", ["/bin/sleep", "100"], linux=resources)

    return made


@EVERY
def test_told_right(
    engine: str, cgroup: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """The printed rules of the runtime or its program agree with open(2) from inside."""
    with running(sleeping(RULES), engine, cgroup) as container:
        inside = opened(container, *ASKED)
        asks = [f"rules.verdict('c', {numbers.replace(':', ', ')}, 'rw')" for numbers in ASKED]
        verdicts = dict(zip(ASKED, told(container, *asks), strict=True))
    assert {name: allowed for name, (allowed, _) in verdicts.items()} == {
        name: result != "EPERM" for name, result in inside.items()
    }
    assert inside["195:0"] == "ENXIO"
    assert inside["195:2"] == "EPERM"
    reason = verdicts["195:2"][1]
    assert "gpuhook-tests/" in reason


@ENGINES
def test_decoded_right(engine: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]) -> None:
    """The runtime's own program is decoded to the rules that it was made of, and its defaults."""
    with running(sleeping(RULES), engine, "v2") as container:
        [lines] = told(container, "[[r.allow, r.line] for r in rules.programs()[0].rules]")
    assert lines[0] == [False, "a *:* rwm"]
    for line in ("c 195:0 rw", "c 195:1 r", "c 510:* rwm", "c *:* m", "c 1:3 rwm", "c 136:* rwm"):
        assert [True, line] in lines


@EVERY
def test_changed_and_put_back(
    engine: str, cgroup: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A device is allowed and denied again while the container runs, and the old rules are back.

    Twice changes nothing more.
    """
    with running(sleeping(RULES), engine, cgroup) as container:
        before = told(container, "[p.seen.hex() for p in rules.programs()]", DESCRIBED)
        first, again = told(container, CHANGE, CHANGE)
        assert (first, again) == (True, False)
        assert opened(container, "195:7", "195:255", "195:8", "195:0") == {
            "195:7": "ENXIO",
            "195:255": "ENXIO",
            "195:8": "EPERM",
            "195:0": "ENXIO",
        }
        assert told(container, DROP)[0]
        assert opened(container, "195:7", "195:0") == {"195:7": "EPERM", "195:0": "ENXIO"}
        after = told(container, "[p.seen.hex() for p in rules.programs()]", DESCRIBED)
    assert after[0] == before[0]
    if not before[0]:  # cgroup v1; on v2 the description has the programs' numbers
        assert after[1] == before[1]


@EVERY
def test_granted_device_taken_away(
    engine: str, cgroup: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A device of the container's config is denied; after it is allowed again, no rule remains."""
    with running(sleeping(RULES), engine, cgroup) as container:
        taken, again = told(container, *["rules.change([], deny('c 195:0 rw'))"] * 2)
        assert (taken, again) == (True, False)
        assert opened(container, "195:0", "510:0") == {"195:0": "EPERM", "510:0": "ENXIO"}
        given, ours = told(
            container, "rules.change(allow('c 195:0 rw'))", "[p.ours for p in rules.programs()]"
        )
        assert given
        assert all(block == [] for block in ours)
        assert opened(container, "195:0") == {"195:0": "ENXIO"}


@EVERY
def test_snapshot(
    engine: str, cgroup: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """What was changed since a snapshot is put back exactly: the same programs by number."""
    with running(sleeping(RULES), engine, cgroup) as container:
        before, _, changed, _, after = told(
            container,
            DESCRIBED,
            "globals().update(mark=rules.snapshot())",
            f"[{CHANGE}, rules.change([], deny('c 195:0 r', 'c 195:1 r'))]",
            "rules.restore(mark)",
            DESCRIBED,
        )
        assert all(changed)
        assert sorted(after) == sorted(before)  # the kernel puts new rules of v1 at the end
        assert opened(container, "195:0", "195:7") == {"195:0": "ENXIO", "195:7": "EPERM"}


@ENGINES
def test_a_program_beside(engine: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]) -> None:
    """A second program, as systemd adds at a daemon-reload, denies; both are treated."""
    with running(sleeping(RULES), engine, "v2") as container:
        told(container, CHANGE)
        identity, (allowed, reason) = told(
            container, "beside(rules.path)", "rules.verdict('c', 195, 7, 'rw')"
        )
        assert not allowed
        assert f"program {identity} (beside)" in reason
        assert opened(container, "195:7") == {"195:7": "EPERM"}
        did, blocks = told(container, CHANGE, "[len(p.ours) for p in rules.programs()]")
        assert did
        assert blocks == [2, 2]
        assert opened(container, "195:7", "195:0") == {"195:7": "ENXIO", "195:0": "EPERM"}
        assert told(container, DROP) == [True]
        assert opened(container, "195:7") == {"195:7": "EPERM"}


@EVERY
def test_all_devices_allowed(
    engine: str, cgroup: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """In a container that may use every device, one is denied and given back."""
    everything = [{"allow": True, "access": "rwm"}]
    with running(sleeping(everything), engine, cgroup) as container:
        assert told(container, CHANGE) == [False]
        assert told(container, "rules.change([], deny('c 195:0 rw'))")[0]
        assert opened(container, "195:0", "195:1") == {"195:0": "EPERM", "195:1": "ENXIO"}
        told(container, "rules.drop(deny('c 195:0 rw'))")
        assert opened(container, "195:0") == {"195:0": "ENXIO"}


def test_a_class_of_devices_on_v1(sleeping: Callable[[list[dict[str, Any]]], Bundle]) -> None:
    """Cgroup v1 cannot deny one device of an allowed class: refused, and nothing is written."""
    with running(sleeping(RULES), "runc", "host") as container:
        version, before, failed, after = told(
            container,
            "rules.version",
            DESCRIBED,
            "rules.change(allow('c 195:9 rw'), deny('c 510:3 rw'))",
            DESCRIBED,
        )
        if version != "v1":
            pytest.skip("this machine has no cgroup v1")
    assert failed["code"] == "GH1704"
    assert "c 510:* rwm" in failed["message"]
    assert after == before


@EVERY
def test_container_gone(
    engine: str, cgroup: str, sleeping: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A cgroup that is gone is an error that names it."""
    with running(sleeping(RULES), engine, cgroup) as container:
        pid = container.pid
        [verdict, change] = told(
            container,
            # Read before the container ends, used after it: its cgroup's file of the time.
            f"(lambda r: (__import__('os').kill({pid}, 9), __import__('time').sleep(1),"
            " __import__('os').rmdir(r.path), r.verdict('c', 195, 0, 'rw')))(rules)",
            CHANGE,
        )
    for failure in (verdict, change):
        assert failure["errno"] == 2
        assert "gpuhook-tests/" in failure["filename"]
