# SPDX-License-Identifier: Apache-2.0
"""The rules of CDI specs: accepted and refused specs, and the messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpuhook.cdi import validate
from gpuhook.cdi.hot import spec_rules, spec_versions
from gpuhook.errors import GpuhookError

GOOD: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "vendor.com/device",
    "annotations": {"example.com/why": "a test"},
    "devices": [
        {"name": "dev0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}},
        {"name": "dev1", "containerEdits": {"additionalGids": [44]}},
    ],
    "containerEdits": {
        "env": ["A=1", "EMPTY="],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/true", "env": []}],
        "intelRdt": {"closID": "class"},
    },
}


def changed(pointer: str, value: object) -> dict[str, Any]:
    """Return GOOD with the value at `pointer` replaced, added or (Ellipsis) removed."""
    spec = copy.deepcopy(GOOD)
    *steps, last = pointer.split("/")[1:]
    place: Any = spec
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return spec


def refused(spec: object) -> GpuhookError:
    """Return the fault of a refused `spec`."""
    with pytest.raises(GpuhookError) as caught:
        spec_rules.check(spec, "/etc/cdi/x.json")
    assert caught.value.message.startswith("/etc/cdi/x.json: ")
    return caught.value


def test_valid_spec_passes() -> None:
    """A spec that uses most of CDI passes the rules and the schema."""
    spec_rules.check(GOOD, "x")
    validate.check(GOOD, "x")


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/containerEdits", None),
        ("/containerEdits/mounts", None),
        ("/devices/0/containerEdits/deviceNodes/0/type", ""),
        ("/kind", "a/b"),
        ("/devices/0/name", "0:1.x-y_z"),
        ("/devices/0/name", "x"),
    ],
)
def test_what_the_reference_accepts_passes(pointer: str, value: object) -> None:
    """null means absent, names may have one letter, digits may start a device name."""
    spec_rules.check(changed(pointer, value), "x")


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        ("/cdiVersion", ..., "missing"),
        ("/cdiVersion", 0.7, "not a string"),
        ("/cdiVersion", "0.5", "not a version"),
        ("/kind", ..., "not vendor/class"),
        ("/kind", "vendor.com", "not vendor/class"),
        ("/kind", "1vendor/class", "not vendor/class"),
        ("/kind", "vendor/class-", "not vendor/class"),
        ("/kind", "vendor/a/b", "not vendor/class"),
        ("/devices", [], "at least one device"),
        ("/devices", ..., "at least one device"),
        ("/devices", {}, "not a list"),
        ("/devices/0/name", "", "not a device name"),
        ("/devices/0/name", "a b", "not a device name"),
        ("/devices/0/name", "a\n", "not a device name"),
        ("/devices/0/name", "-a", "not a device name"),
        ("/devices/1/name", "dev0", "also /devices/0"),
        ("/devices/0/containerEdits", {}, "at least one edit"),
        ("/devices/0/containerEdits", {"env": []}, "at least one edit"),
        ("/devices/0/containerEdits/deviceNodes/0/path", "", "missing or empty"),
        ("/devices/0/containerEdits/deviceNodes/0/type", "x", "not one of b, c, u, p"),
        ("/devices/0/containerEdits/deviceNodes/0/permissions", "rx", "only r, w and m"),
        ("/devices/0/containerEdits/deviceNodes/0/major", True, "not an integer"),
        ("/devices/0/containerEdits/deviceNodes/0/fileMode", -1, "at least 0"),
        ("/devices/0/containerEdits/deviceNodes/0/fileMode", "0666", "at least 0"),
        ("/devices/0/containerEdits/deviceNodes/0", None, "not an object"),
        ("/devices/1/containerEdits/additionalGids/0", 1 << 32, "at least 0"),
        ("/containerEdits/env/0", "NOEQUALS", "not NAME=value"),
        ("/containerEdits/env/0", "=x", "not NAME=value"),
        ("/containerEdits/env/0", 1, "not a string"),
        ("/containerEdits/env/0", "A=\0", "a NUL or half a character"),
        ("/containerEdits/env/0", "A=\ud800", "a NUL or half a character"),
        ("/containerEdits/mounts/0/hostPath", ..., "missing or empty"),
        ("/containerEdits/mounts/0/containerPath", "", "missing or empty"),
        ("/containerEdits/mounts/0/Options", [], "unknown field"),
        ("/containerEdits/hooks/0/hookName", "onStart", "not one of prestart"),
        ("/containerEdits/hooks/0/path", ..., "missing or empty"),
        ("/containerEdits/hooks/0/env", ["X"], "not NAME=value"),
        ("/containerEdits/intelRdt/closID", "../up", "not a directory name"),
        ("/containerEdits/netDevices", [{"name": "eth0"}], "missing or empty"),
        ("/containerEdits/a~b", 1, "unknown field"),
        ("/annotations/bad key", "x", "not a valid annotation key"),
        ("/annotations/x", 5, "an object of strings"),
        ("/annotations/x", "y" * (256 << 10), "larger than"),
    ],
)
def test_broken_rules_are_named(pointer: str, value: object, words: str) -> None:
    """Each broken rule is refused with its JSON pointer and the reason."""
    error = refused(changed(pointer, value))
    assert error.code == "GH1106"
    assert words in error.message
    shown = pointer.replace("~", "~0")
    parents = (shown, shown + "/0", shown.rpartition("/")[0], shown + "/0/hostInterfaceName")
    assert any(f": {parent}: " in error.message for parent in parents)


@pytest.mark.parametrize("spec", [None, [], "text", 5])
def test_spec_must_be_an_object(spec: object) -> None:
    """A document that is not an object is refused like any other broken spec."""
    assert refused(spec).code == "GH1106"


@pytest.mark.parametrize("version", ["1.2.0", "1.1.1", "2.0.0", "10.0.0"])
def test_newer_version_has_its_own_fault(version: str) -> None:
    """A newer version has a fault other than a broken one's, whatever the spec contains."""
    error = refused({**GOOD, "cdiVersion": version, "fromTheFuture": 1})
    assert error.code == "GH1107"
    assert version in error.message


NODE = {"deviceNodes": [{"path": "/dev/x"}]}


@pytest.mark.parametrize(
    ("needed", "parts"),
    [
        ("0.3.0", {}),
        ("0.4.0", {"containerEdits": {"mounts": [{"type": "bind"}]}}),
        ("0.5.0", {"containerEdits": {"deviceNodes": [{"path": "/x", "hostPath": "/y"}]}}),
        ("0.5.0", {"devices": [{"name": "0", "containerEdits": NODE}]}),
        ("0.6.0", {"annotations": {"a": "b"}}),
        ("0.6.0", {"kind": "vendor.com/a.b"}),
        ("0.6.0", {"devices": [{"name": "d", "annotations": {"a": "b"}, "containerEdits": NODE}]}),
        ("0.7.0", {"containerEdits": {"additionalGids": [1]}}),
        ("0.7.0", {"containerEdits": {"intelRdt": {"closID": "x"}}}),
        ("1.1.0", {"containerEdits": {"intelRdt": {"enableMonitoring": True}}}),
        ("1.1.0", {"containerEdits": {"netDevices": [{"name": "a", "hostInterfaceName": "b"}]}}),
    ],
)
def test_the_lowest_version_follows_the_content(needed: str, parts: dict[str, Any]) -> None:
    """Each part of CDI requires the version that introduced it."""
    spec = {"kind": "vendor.com/x", "devices": [{"name": "d", "containerEdits": NODE}], **parts}
    assert spec_versions.lowest(spec) == needed


def test_too_low_a_version_is_refused() -> None:
    """A spec that uses more than its version has is refused with the field and its version."""
    error = refused({**GOOD, "cdiVersion": "0.5.0"})
    assert error.code == "GH1108"
    assert "intelRdt needs 0.7.0" in error.message
    assert "0.7.0" in error.hint


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/devices/0/containerEdits/deviceNodes/0/path", "dev/null"),
        ("/containerEdits/mounts/0/options/0", ""),
        ("/containerEdits/hooks/0/timeout", 0),
    ],
)
def test_schema_is_stricter_than_cdi(pointer: str, value: object) -> None:
    """gpuhook's schema refuses what CDI accepts and no runtime can do."""
    spec = changed(pointer, value)
    spec_rules.check(spec, "x")
    with pytest.raises(GpuhookError, match=r"^x: /") as caught:
        validate.check(spec, "x")
    assert caught.value.code == "GH1106"


def test_one_wrong_device_among_many_is_located() -> None:
    spec = copy.deepcopy(GOOD)
    spec["devices"] = [
        {"name": f"d{n}", "containerEdits": {"deviceNodes": [{"path": f"/dev/x{n}"}]}}
        for n in range(30)
    ]
    validate.check(spec, "x")
    spec["devices"][17]["containerEdits"]["deviceNodes"][0]["path"] = "dev/x17"
    with pytest.raises(GpuhookError, match="/devices/17/containerEdits/deviceNodes/0/path"):
        validate.check(spec, "x")


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(GpuhookError, match="is not UTF-8"):
        validate.check(changed("/containerEdits/env/0", "A=\udcff"), "x")
