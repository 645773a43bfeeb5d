# SPDX-License-Identifier: Apache-2.0
"""gpuhook and the runtime read config.json alike, or the container with a GPU is refused."""

from __future__ import annotations

import json

import pytest

from gpuhook.apply.spec import config_json
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson
from gpuhook.request import parse
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks
from tests.contract.live import prestart
from tests.contract.runtimes import ENGINES, run
from tests.contract.test_bad_input import assert_refused

NAMES = ("A", "B", "C", "NVIDIA_VISIBLE_DEVICES")

AGAIN = '{"env":["A=2","NVIDIA_VISIBLE_DEVICES=0"]}'
# Replacements of `"root":` at the top of config.json, each with a key before it.
BESIDE = {
    "Process": '"Process":{"env":["A=2"]},"root":',
    "PROCESS without env": '"PROCESS":{"cwd":"/"},"root":',
    "long s": '"proce\u017f\u017f":{"env":["A=2"]},"root":',
    "escaped long s": r'"proce\u017f\u017f":{"env":["A=2"]},"root":',
    "process twice": f'"process":{AGAIN},"root":',
    "process twice, escaped": rf'"\u0070rocess":{AGAIN},"root":',
    "Root": '"Root":{"path":"/"},"root":',
    "Mounts": '"Mounts":[],"root":',
    "mounts twice": '"mounts":[],"root":',
    "Hooks": '"Hooks":{},"root":',
    "Linux": '"Linux":{"devices":[]},"root":',
    "Annotations": '"Annotations":{"a":"b"},"root":',
    "a part twice": '"x-part":{"a":1,"a":2},"root":',
}
# Replacements of `"env":` in process.
IN_PROCESS = {
    "Env": '"Env":["A=2"],"env":',
    "ENV without entries": '"ENV":null,"env":',
    "env twice": '"env":["A=2"],"env":',
    "User": '"User":{"uid":0},"env":',
    "Capabilities": '"Capabilities":{"bounding":[]},"env":',
}
IN_LINUX = {
    "Devices": '"Devices":[],"namespaces":',
    "RESOURCES": '"RESOURCES":{},"namespaces":',
    "namespaces with a long s": '"name\u017fpaces":[],"namespaces":',
    "UIDMappings": '"UIDMappings":[],"namespaces":',
}
DEEPER = {
    "mount": ('"destination":"/proc"', '"destination":"/proc","Destination":"/proc"'),
    "mount options": ('"destination":"/proc"', '"destination":"/proc","Options":[]'),
    "rule": ('"allow":false', '"allow":false,"ALLOW":true'),
    "namespace": ('"type":"pid"', '"type":"pid","Type":"pid"'),
    "bounding": ('"bounding":', '"Bounding":[],"bounding":'),
}
# A text ends at a NUL for crun; runc takes all of a key, and no value.
NULS = {
    "key with a NUL": ('"env":[', r'"env\u0000x":["A=2"],"env":['),
    "process with a NUL": (
        '"process":{',
        r'"process\u0000":{"args":["/probe"],"cwd":"/","env":["A=2"]},"process":{',
    ),
    "value with a NUL": ('"A=1"', r'"A=1\u0000x"'),
    "name with a NUL": ('"A=1"', r'"A\u0000=1","A=2"'),
}
REFUSED = {
    **{name: ('"root":', new) for name, new in BESIDE.items()},
    **{name: ('"env":', new) for name, new in IN_PROCESS.items()},
    **{name: ('"namespaces":', new) for name, new in IN_LINUX.items()},
    **DEEPER,
    **NULS,
}
TAKEN = {
    "as it was": ('"root":', '"root":'),
    "hostname in another case": ('"hostname":', '"Hostname":'),
    "an unknown key": ('"root":', '"x-Root":{"Path":1},"root":'),
    "annotations of the user": ('"root":', '"annotations":{"Env":"a","ENV":"b","env":"c"},"root":'),
    "null": ('"root":', '"annotations":null,"hooks":null,"root":'),
    "escapes": ('"env":[', r'"env":["\u0042=\u0031\ud83d\ude00",'),
    "a letter of another alphabet": ('"root":', '"\u0440rocess":{"env":["A=2"]},"root":'),
    "a backslash and zeros": ('"root":', r'"x":"\\u0000","root":'),
    "digits": ('"root":', '"x-digits":' + "9" * 5000 + ',"root":'),
}
TYPES = {
    "env": ('"env":[', '"env":5,"x-env":['),
    "env of an object": ('"env":[', '"env":{"A":"1"},"x-env":['),
    "namespaces": ('"namespaces":[', '"namespaces":5,"x-namespaces":['),
    "namespaces of an object": ('"namespaces":[', '"namespaces":{"type":"user"},"x-namespaces":['),
    "device path": ('"namespaces":', '"devices":[{"path":{"a":1},"type":"c"}],"namespaces":'),
    "devices": ('"namespaces":', '"devices":{"path":"/dev/x"},"namespaces":'),
    "mounts": ('"mounts":[', '"mounts":"x","x-mounts":['),
    "destination": ('"destination":"/run"', '"destination":["/run"]'),
    "process": ('"process":{', '"process":[],"x-process":{'),
    "hooks": ('"root":', '"hooks":[],"root":'),
    "stage": ('"root":', '"hooks":{"prestart":{}},"root":'),
    "annotations": ('"root":', '"annotations":[],"root":'),
    "linux": ('"linux":{', '"linux":"x","x-linux":{'),
}


def replace_text(made: Bundle, old: str, new: str) -> bytes:
    """Replace a text that config.json has once, and return the new content."""
    text = json.dumps(made.config(), separators=(",", ":"))
    assert text.count(old) == 1, old
    made.file.write_bytes(text.replace(old, new).encode())
    return made.file.read_bytes()


@pytest.fixture
def bundle(bundle_of: Bundles) -> Bundle:
    """Return a bundle that requests a GPU, and has one more variable."""
    return bundle_of("distroless", ["/probe"], ["A=1", *asks("0")])


def read_by_runtime(made: Bundle, engine: str) -> dict[str, str] | None:
    """Return variables as the container's program has them, None if it does not start."""
    result = run(made, [engine], engine)
    if result.rc:
        return None
    return {name: result.view.values(name)[-1] for name in NAMES if result.view.values(name)}


def read_by_gpuhook(raw: bytes) -> dict[str, str] | None:
    """Return these variables as gpuhook reads them, None if it refuses config.json."""
    spec = config_json.parsed("config.json", raw)
    try:
        config_json.require_unambiguous(spec)
    except GpuhookError:
        return None
    variables = parse.environment(spec)
    return {name: variables[name] for name in NAMES if name in variables}


@ENGINES
@pytest.mark.parametrize("case", [*REFUSED, *TAKEN, *TYPES])
def test_gpuhook_and_runtime_read_the_same_variables(
    case: str, engine: str, bundle: Bundle
) -> None:
    """Unless gpuhook refuses config.json, the container has the variables that gpuhook read."""
    raw = replace_text(bundle, *{**REFUSED, **TAKEN, **TYPES}[case])
    ours, theirs = read_by_gpuhook(raw), read_by_runtime(bundle, engine)
    assert (ours is None) == (case not in TAKEN)
    if case in TAKEN:
        assert ours == theirs
    if case in TYPES:
        assert theirs is None or engine == "crun"  # which treats some as absent


def test_crun_ends_a_key_at_a_nul(bundle: Bundle) -> None:
    """crun reads the first of two keys that are equal up to a NUL, runc the second."""
    replace_text(bundle, *NULS["process with a NUL"])
    assert read_by_runtime(bundle, "crun") == {"A": "2"}
    assert (read_by_runtime(bundle, "runc") or {})["A"] == "1"


def test_runc_merges_keys_that_differ_in_case(bundle: Bundle) -> None:
    """runc reads keys regardless of case: the values of a second key replace those of the first."""
    replace_text(bundle, '"root":', BESIDE["Process"])
    assert read_by_runtime(bundle, "runc") == {"A": "2"}


REWRITTEN = {
    "low surrogate": ('"A=1"', rb'"A=\udcff"'),
    "high surrogate": ('"A=1"', rb'"A=\ud800"'),
    "a byte": ('"A=1"', b'"A=\xff"'),
    "high surrogate and a byte": ('"A=1"', b'"A=\\ud800\xff"'),
    "minus zero": ('"uid":0', b'"uid":-0'),
    "fraction": ('"terminal":false', b'"oomScoreAdj":10.0'),
    "exponent": ('"terminal":false', b'"oomScoreAdj":1e1'),
    "many digits": ('"terminal":false', b'"oomScoreAdj":' + b"1" * 5000),
    "many digits elsewhere": ('"terminal":false', b'"x":' + b"1" * 5000),
    "not a number": ('"terminal":false', b'"x":NaN'),
    "control characters": ('"A=1"', b'"A=\x7f\xc2\x85\xe2\x80\xa8"'),
}


@ENGINES
@pytest.mark.parametrize("case", REWRITTEN)
def test_rewritten_config_json_reads_the_same(case: str, engine: str, bundle: Bundle) -> None:
    old, new = REWRITTEN[case]
    raw = replace_text(bundle, old, "<new>").replace(b"<new>", new)
    bundle.file.write_bytes(raw)
    before = read_by_runtime(bundle, engine)
    bundle.file.write_bytes(fastjson.dumps(config_json.parsed("config.json", raw), raw))
    assert read_by_runtime(bundle, engine) == before


WRAPPER = [
    *(("GH1307", name) for name in ("Process", "escaped long s", "process twice", "Annotations")),
    *(("GH1307", name) for name in ("Env", "Devices", "mount", "a part twice")),
    *(("GH1303", name) for name in ("namespaces", "device path", "destination", "stage")),
    *(("GH1308", name) for name in NULS),
]


@pytest.mark.parametrize(("code", "case"), WRAPPER)
def test_wrapper_refuses_ambiguous_config_json(
    code: str, case: str, node8: Installation, bundle: Bundle
) -> None:
    before = replace_text(bundle, *{**REFUSED, **TYPES}[case])
    entries = node8.entries()
    assert_refused(node8.edit(bundle), code)
    assert bundle.file.read_bytes() == before
    assert node8.entries() == entries


def test_deep_nesting_is_kept(node8: Installation, bundle: Bundle) -> None:
    """What can be read is written, too."""
    deep = "[" * 900 + "1.5" + "]" * 900
    replace_text(bundle, '"root":', f'"x":{deep},"root":')
    assert node8.edit(bundle).rc == 0
    assert f'"x":{deep}'.encode() in bundle.file.read_bytes()


@pytest.mark.parametrize(("old", "new"), [TYPES["env"], TYPES["process"]])
def test_wrapper_refuses_annotation_request_with_a_wrong_type(
    old: str, new: str, node8: Installation, bundle: Bundle
) -> None:
    bundle.write({**bundle.config(), "annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0"}})
    before = replace_text(bundle, old, new)
    assert_refused(node8.edit(bundle), "GH1303")
    assert bundle.file.read_bytes() == before


@pytest.mark.parametrize(("code", "case"), WRAPPER)
def test_wrapper_ignores_config_json_without_request(
    code: str, case: str, node8: Installation, bundle_of: Bundles
) -> None:
    """A container without a request starts, whatever its config.json has."""
    made = bundle_of("distroless", ["/probe"], ["A=1", *asks("void")])
    old, new = {**REFUSED, **TYPES}[case]
    before = replace_text(made, old, new.replace("DEVICES=0", "DEVICES=void"))
    result = node8.edit(made)
    assert (result.rc, code in result.log) == (0, False)
    assert made.file.read_bytes() == before


@pytest.mark.parametrize("case", ["Process", "process twice", "mount"])
@pytest.mark.parametrize("value", ["0", "void"])
def test_prestart_hook_refuses_ambiguous_config_json(
    case: str, value: str, apart: Installation, bundle_of: Bundles
) -> None:
    """runc has read config.json before the hook: only a container with a request fails."""
    env = ["A=1", *asks(value)]
    made = bundle_of("distroless", ["/probe"], env, hooks=prestart(apart))
    old, new = REFUSED[case]
    text = json.dumps(made.config(), separators=(",", ":"))
    at = text.index(old)
    new = new.replace("DEVICES=0", f"DEVICES={value}")
    made.file.write_text(text[:at] + new + text[at + len(old) :], encoding="utf-8")
    result = run(made)
    assert (result.rc == 0) == (value == "void"), result
    assert ("GH1307" in result.stderr + result.log) == (value == "0")
