# SPDX-License-Identifier: Apache-2.0
"""Device rules of running containers: printed, changed, and restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.bundles import Bundle, Bundles, rule
from tests.contract.device_side import evaluate
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
def running_container(bundle: Bundle, engine: str, cgroup: str) -> Iterator[Container]:
    """Yield a container that runs until it is deleted."""
    with lifecycle(bundle, [engine], engine, cgroup) as container:
        container.start()
        yield container


def open_results(container: Container, *devices: str) -> dict[str, str]:
    """Return the results of open(2) on devices inside the container."""
    tries = [word for device in devices for word in ("--try", device)]
    done = container.call("exec", "/probe", *tries)
    assert done.rc == 0, done
    return view(done.stdout).tries


@pytest.fixture
def sleeping_bundle(bundle_of: Bundles) -> Callable[[list[dict[str, Any]]], Bundle]:
    """Return a function: device rules -> the bundle of a container that sleeps."""

    def bundle_with(rules: list[dict[str, Any]]) -> Bundle:
        resources = {"resources": {"devices": rules}}
        return bundle_of("debian", ["/bin/sleep", "100"], linux=resources)

    return bundle_with


@EVERY
def test_verdicts_agree_with_open(
    engine: str, cgroup: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """The verdict on each device agrees with open(2) inside the container."""
    with running_container(sleeping_bundle(RULES), engine, cgroup) as container:
        inside = open_results(container, *ASKED)
        asks = [f"rules.verdict('c', {numbers.replace(':', ', ')}, 'rw')" for numbers in ASKED]
        verdicts = dict(zip(ASKED, evaluate(container, *asks), strict=True))
    assert {name: allowed for name, (allowed, _) in verdicts.items()} == {
        name: result != "EPERM" for name, result in inside.items()
    }
    assert inside["195:0"] == "ENXIO"
    assert inside["195:2"] == "EPERM"
    reason = verdicts["195:2"][1]
    assert "gpuhook-tests/" in reason


@ENGINES
def test_runtimes_program_is_decoded_to_its_rules(
    engine: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """The runtime's program is decoded to the rules of config.json and the runtime's defaults."""
    with running_container(sleeping_bundle(RULES), engine, "v2") as container:
        [lines] = evaluate(container, "[[r.allow, r.line] for r in rules.programs()[0].rules]")
    assert lines[0] == [False, "a *:* rwm"]
    for line in ("c 195:0 rw", "c 195:1 r", "c 510:* rwm", "c *:* m", "c 1:3 rwm", "c 136:* rwm"):
        assert [True, line] in lines


@EVERY
def test_allowed_device_is_dropped_again(
    engine: str, cgroup: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A device is allowed and dropped while the container runs; a second change has no effect."""
    with running_container(sleeping_bundle(RULES), engine, cgroup) as container:
        before = evaluate(container, "[p.seen.hex() for p in rules.programs()]", DESCRIBED)
        first, again = evaluate(container, CHANGE, CHANGE)
        assert (first, again) == (True, False)
        assert open_results(container, "195:7", "195:255", "195:8", "195:0") == {
            "195:7": "ENXIO",
            "195:255": "ENXIO",
            "195:8": "EPERM",
            "195:0": "ENXIO",
        }
        assert evaluate(container, DROP)[0]
        assert open_results(container, "195:7", "195:0") == {"195:7": "EPERM", "195:0": "ENXIO"}
        after = evaluate(container, "[p.seen.hex() for p in rules.programs()]", DESCRIBED)
    assert after[0] == before[0]
    if not before[0]:  # cgroup v1; on v2 the description has the programs' numbers
        assert after[1] == before[1]


@EVERY
def test_device_of_config_json_is_denied_and_allowed(
    engine: str, cgroup: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A device of config.json is denied, then allowed again, which leaves no rule of gpuhook."""
    with running_container(sleeping_bundle(RULES), engine, cgroup) as container:
        denied, again = evaluate(container, *["rules.change([], deny('c 195:0 rw'))"] * 2)
        assert (denied, again) == (True, False)
        assert open_results(container, "195:0", "510:0") == {"195:0": "EPERM", "510:0": "ENXIO"}
        allowed, ours = evaluate(
            container, "rules.change(allow('c 195:0 rw'))", "[p.ours for p in rules.programs()]"
        )
        assert allowed
        assert all(block == [] for block in ours)
        assert open_results(container, "195:0") == {"195:0": "ENXIO"}


@EVERY
def test_restore_brings_back_the_snapshot(
    engine: str, cgroup: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """restore() undoes the changes since a snapshot, with the same programs by id."""
    with running_container(sleeping_bundle(RULES), engine, cgroup) as container:
        before, _, changed, _, after = evaluate(
            container,
            DESCRIBED,
            "globals().update(mark=rules.snapshot())",
            f"[{CHANGE}, rules.change([], deny('c 195:0 r', 'c 195:1 r'))]",
            "rules.restore(mark)",
            DESCRIBED,
        )
        assert all(changed)
        assert sorted(after) == sorted(before)  # the kernel puts new rules of v1 at the end
        assert open_results(container, "195:0", "195:7") == {"195:0": "ENXIO", "195:7": "EPERM"}


@ENGINES
def test_second_program_is_changed_too(
    engine: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A second program, which systemd adds at a daemon-reload, denies; both are changed."""
    with running_container(sleeping_bundle(RULES), engine, "v2") as container:
        evaluate(container, CHANGE)
        identity, (allowed, reason) = evaluate(
            container, "attach_program(rules.path)", "rules.verdict('c', 195, 7, 'rw')"
        )
        assert not allowed
        assert f"program {identity} (beside)" in reason
        assert open_results(container, "195:7") == {"195:7": "EPERM"}
        changed, blocks = evaluate(container, CHANGE, "[len(p.ours) for p in rules.programs()]")
        assert changed
        assert blocks == [2, 2]
        assert open_results(container, "195:7", "195:0") == {"195:7": "ENXIO", "195:0": "EPERM"}
        assert evaluate(container, DROP) == [True]
        assert open_results(container, "195:7") == {"195:7": "EPERM"}


@EVERY
def test_device_is_denied_if_all_are_allowed(
    engine: str, cgroup: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """In a container that may use each device, one is denied and allowed again."""
    everything = [{"allow": True, "access": "rwm"}]
    with running_container(sleeping_bundle(everything), engine, cgroup) as container:
        assert evaluate(container, CHANGE) == [False]
        assert evaluate(container, "rules.change([], deny('c 195:0 rw'))")[0]
        assert open_results(container, "195:0", "195:1") == {"195:0": "EPERM", "195:1": "ENXIO"}
        evaluate(container, "rules.drop(deny('c 195:0 rw'))")
        assert open_results(container, "195:0") == {"195:0": "ENXIO"}


def test_v1_cannot_deny_one_device_of_a_class(
    sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle],
) -> None:
    """On cgroup v1 one device of an allowed class cannot be denied: nothing is written."""
    with running_container(sleeping_bundle(RULES), "runc", "host") as container:
        version, before, failed, after = evaluate(
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
def test_missing_cgroup_is_an_error(
    engine: str, cgroup: str, sleeping_bundle: Callable[[list[dict[str, Any]]], Bundle]
) -> None:
    """A removed cgroup causes an error that names it."""
    with running_container(sleeping_bundle(RULES), engine, cgroup) as container:
        pid = container.pid
        [verdict, change] = evaluate(
            container,
            # The rules are read before the container ends, and used after it.
            f"(lambda r: (__import__('os').kill({pid}, 9), __import__('time').sleep(1),"
            " __import__('os').rmdir(r.path), r.verdict('c', 195, 0, 'rw')))(rules)",
            CHANGE,
        )
    for failure in (verdict, change):
        assert failure["errno"] == 2
        assert "gpuhook-tests/" in failure["filename"]
