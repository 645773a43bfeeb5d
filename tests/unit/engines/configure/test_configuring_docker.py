# SPDX-License-Identifier: Apache-2.0
"""Docker's daemon.json: the result for each kind of file, byte for byte, and refused files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuhook.engines.configure.docker import configure_docker
from gpuhook.engines.read import docker_config as reading
from gpuhook.errors import GpuhookError
from tests.unit.configuring import HOOK, RUNTIME, configured, node, undone, wanted

PATH = reading.PATH
OURS = f'"nvidia": {{"path": "{RUNTIME}"}}'
NEW = f"""{{
    "runtimes": {{
        "nvidia": {{
            "path": "{RUNTIME}"
        }}
    }}
}}
"""
THEIRS = '{"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}\n'
RECENT = (28, 3, 0)  # this version injects CDI devices by itself
TABS = '{\n\t"debug": true\n}\n'

CASES: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "no file": (None, NEW, {}),
    "empty": ("", NEW, {}),
    "white space": (" \n\n", NEW, {}),
    "empty object": ("{}", NEW.rstrip("\n"), {}),
    "empty object of two lines": ("{\n}\n", NEW, {}),
    "one line": ('{"debug": true}\n', f'{{"debug": true, "runtimes": {{{OURS}}}}}\n', {}),
    "compact": ('{"debug":true}', f'{{"debug":true,"runtimes":{{{OURS}}}}}', {}),
    "a space before members only": (
        '{"debug":true, "ipv6":true}\n',
        f'{{"debug":true, "ipv6":true,"runtimes":{{{OURS}}}}}\n',
        {},
    ),
    "a space inside only": ('{ "a":1 }', f'{{ "a":1,"runtimes":{{{OURS}}} }}', {}),
    "a carriage return in another line": (
        '{\r\n  "runtimes": {\n    "a": {}\n  }\n}\n',
        (
            '{\r\n  "runtimes": {\n    "a": {},\r\n    "nvidia": {\r\n'
            f'      "path": "{RUNTIME}"\r\n    }}\n  }}\n}}\n'
        ),
        {},
    ),
    "two spaces": (
        '{\n  "debug": true,\n  "log-opts": {"max-size": "10m"}\n}\n',
        (
            '{\n  "debug": true,\n  "log-opts": {"max-size": "10m"},\n  "runtimes": {\n'
            f'    "nvidia": {{\n      "path": "{RUNTIME}"\n    }}\n  }}\n}}\n'
        ),
        {},
    ),
    "tabs": (
        TABS,
        (
            '{\n\t"debug": true,\n\t"runtimes": {\n\t\t"nvidia": {\n'
            f'\t\t\t"path": "{RUNTIME}"\n\t\t}}\n\t}}\n}}\n'
        ),
        {},
    ),
    "carriage returns": (
        TABS.replace("\n", "\r\n"),
        (
            '{\n\t"debug": true,\n\t"runtimes": {\n\t\t"nvidia": {\n'
            f'\t\t\t"path": "{RUNTIME}"\n\t\t}}\n\t}}\n}}\n'
        ).replace("\n", "\r\n"),
        {},
    ),
    "byte order mark": ('\ufeff{"a": 1}', f'\ufeff{{"a": 1, "runtimes": {{{OURS}}}}}', {}),
    "no newline in the end": (
        '{\n  "debug": true }',
        (
            '{\n  "debug": true,\n  "runtimes": {\n    "nvidia": {\n'
            f'      "path": "{RUNTIME}"\n    }}\n  }} }}'
        ),
        {},
    ),
    "other runtimes": (
        '{"runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2"}}, "debug": true}\n',
        (
            '{"runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2"}, '
            f'{OURS}}}, "debug": true}}\n'
        ),
        {},
    ),
    "no runtimes": (
        '{"runtimes": {}}',
        f'{{"runtimes": {{\n    "nvidia": {{\n        "path": "{RUNTIME}"\n    }}\n}}}}',
        {},
    ),
    "null": ('{"runtimes": null}\n', f'{{"runtimes": {{{OURS}}}}}\n', {}),
    "order, odd spaces and escapes": (
        '{ "b" : 1 ,  "a":[ 1,2 ], "\\u00e9": "é\\/" }\n',
        f'{{ "b" : 1 ,  "a":[ 1,2 ], "\\u00e9": "é\\/", "runtimes": {{{OURS}}} }}\n',
        {},
    ),
    "braces in strings": (
        '{"a": "}{,\\"runtimes\\": {}"}',
        f'{{"a": "}}{{,\\"runtimes\\": {{}}", "runtimes": {{{OURS}}}}}',
        {},
    ),
    "large numbers": (
        '{"a": 123456789012345678901234567890, "b": 1.50}',
        '{"a": 123456789012345678901234567890, "b": 1.50, ' + f'"runtimes": {{{OURS}}}}}',
        {},
    ),
    "taken over": (THEIRS, f'{{"runtimes": {{{OURS}}}}}\n', {"takes_over": True}),
    "taken over from a shim": (
        '{"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {}}}}',
        f'{{"runtimes": {{{OURS}}}}}',
        {"takes_over": True},
    ),
    "beside NVIDIA's": (
        THEIRS,
        THEIRS.replace("}}}", f'}}, "gpuhook": {{"path": "{RUNTIME}"}}}}}}'),
        {"name": "gpuhook"},
    ),
    "ours at another place": (
        '{"runtimes": {"nvidia": {"path": "/opt/bin/gpuhook-runtime", "runtimeArgs": ["-x"]}}}',
        f'{{"runtimes": {{"nvidia": {{"path": "{RUNTIME}", "runtimeArgs": ["-x"]}}}}}}',
        {},
    ),
    "default": (
        '{"debug": true}',
        f'{{"debug": true, "runtimes": {{{OURS}}}, "default-runtime": "nvidia"}}',
        {"is_default": True},
    ),
    "other default": (
        '{"default-runtime": "crun"}',
        f'{{"default-runtime": "nvidia", "runtimes": {{{OURS}}}}}',
        {"is_default": True},
    ),
    "default that is said": (
        '{"default-runtime": "nvidia"}',
        f'{{"default-runtime": "nvidia", "runtimes": {{{OURS}}}}}',
        {"is_default": True},
    ),
    "features are kept": (
        '{"features": {"buildkit": true}}',
        f'{{"features": {{"buildkit": true, "cdi": true}}, "runtimes": {{{OURS}}}}}',
        {"version": (27, 0)},
    ),
    "CDI that is refused": (
        '{"features": {"cdi": false}}',
        f'{{"features": {{"cdi": false}}, "runtimes": {{{OURS}}}}}',
        {"version": (27, 0)},
    ),
    "CDI of an old Docker": ('{"a": 1}', f'{{"a": 1, "runtimes": {{{OURS}}}}}', {"version": (24,)}),
    "CDI alone": (
        None,
        '{\n    "features": {\n        "cdi": true\n    }\n}\n',
        {"route": "cdi", "version": (27, 0)},
    ),
    "CDI alone, refused before": (
        '{"features": {"cdi": false, "a": true}}',
        '{"features": {"cdi": true, "a": true}}',
        {"route": "cdi"},
    ),
    "CDI alone of a recent Docker": ('{"a": 1}', '{"a": 1}', {"route": "cdi"}),
    "CDI is said": (
        '{"features": {"cdi": true}}',
        '{"features": {"cdi": true}}',
        {"route": "cdi", "version": None},
    ),
}
# The original of these files is known only from the backup.
REPLACED = {
    "null",
    "other default",
    "default that is said",
    "taken over",
    "taken over from a shim",
    "ours at another place",
    "CDI alone, refused before",
    "CDI is said",
}


def files(text: str | None) -> dict[str, bytes]:
    return {} if text is None else {PATH: text.encode()}


@pytest.mark.parametrize(("before", "after", "fields"), CASES.values(), ids=CASES)
def test_configured_file(before: str | None, after: str | None, fields: dict[str, Any]) -> None:
    done = configured("docker", files(before), **{"version": RECENT, **fields})
    assert done == files(after)


@pytest.mark.parametrize("case", [name for name in CASES if name not in REPLACED])
def test_undo_of_an_edited_file_removes_gpuhooks_part(case: str) -> None:
    """All other bytes are kept."""
    before, _, fields = CASES[case]
    left = undone("docker", files(before), **{"version": RECENT, **fields})
    was = json.loads(before.lstrip("\ufeff")) if before and before.strip() else {}
    assert left == (files(before) if was else {})


def test_edits_of_others_are_kept() -> None:
    after = configured("docker", files('{\n  "a": 1\n}\n'), version=RECENT)[PATH]
    edited = after.replace(b'"a": 1', b'"a": 2,\n  "b": 3')
    assert configure_docker.without(PATH, edited, wanted()) == b'{\n  "a": 2,\n  "b": 3\n}\n'


@pytest.mark.parametrize("route", ["wrapper", "cdi"])
def test_undo_of_an_edited_file_restores_replaced_values(route: str) -> None:
    before = {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
        "default-runtime": "nvidia" if route == "cdi" else "kata",
        "features": {"buildkit": True} | ({"cdi": False} if route == "cdi" else {}),
    }
    fields: dict[str, Any] = {"route": route, "takes_over": True, "is_default": route != "cdi"}
    text = json.dumps(before, indent=2).encode()
    after = configured("docker", {PATH: text}, version=RECENT, **fields)[PATH]
    edited = after.replace(b"{", b'{"debug": true,', 1)
    left = configure_docker.without(PATH, edited, wanted(**fields), text)
    assert left is not None
    assert json.loads(left) == {"debug": True, **before}


def test_existing_empty_object_is_kept() -> None:
    text = b'{"a": 1, "runtimes": {}, "features": {}}'
    after = configured("docker", {PATH: text}, version=RECENT)[PATH]
    assert configure_docker.without(PATH, after, wanted(), text) == text


def test_runtime_replaced_by_another_program_is_kept() -> None:
    assert configure_docker.without(PATH, THEIRS.encode(), wanted()) == THEIRS.encode()


REFUSED = {
    "another's runtime": (THEIRS, {}, "GH2000", "daemon.json:1: the nvidia runtime of docker is"),
    "no runtime": (
        '{"runtimes": {\n"nvidia": []}}',
        {"takes_over": True},
        "GH2003",
        'json:2 has a runtime "nvidia" that is not an object',
    ),
    "no object of runtimes": ('{\n"runtimes": []}', {}, "GH2003", 'json:2 has "runtimes" that is'),
    "no object of features": ('{"features": 1}', {}, "GH2003", "json:1 "),
    "default of another kind": ('{\n\n"default-runtime": 1}', {}, "GH2003", "json:3 "),
    "no object": ("[]", {}, "GH2003", "is not a JSON object"),
    "comma too many": ('{\n"a": 1,\n}', {}, "GH2003", "json:3 "),
    "comment": ('{\n// a\n"a": 1}', {}, "GH2003", "json:2 "),
    "trailing garbage": ('{"a": 1}\n}', {}, "GH2003", "json:2 is not JSON: Extra data"),
    "no number of JSON": ('{\n"a": NaN}', {}, "GH2003", "is not JSON"),
    "runtimes twice": (
        '{"runtimes": {},\n"runtimes": {}}',
        {},
        "GH2047",
        "json:2: runtimes occurs",
    ),
    "a runtime twice": (
        f'{{"runtimes": {{"nvidia": {{"path": "/gpuhook-runtime"}},\n{OURS},"a": {{}},\n{OURS}}}}}',
        {"program": "/other"},
        "GH2047",
        "json:2: runtimes.nvidia occurs",
    ),
    "a reserved name": ("{}", {"name": "runc"}, "GH2041", "runc"),
    "a shim's name": ("{}", {"name": "io.containerd.runc.v2"}, "GH2041", "io.containerd"),
    "a default without a runtime": ("{}", {"route": "cdi", "is_default": True}, "GH2042", "cdi"),
    "a drop-in": ("{}", {"drop_in": "/etc/docker/a.json"}, "GH2043", "docker"),
    "CDI of an old Docker": ("{}", {"route": "cdi", "version": (24, 0, 7)}, "GH2045", "24.0.7"),
}


@pytest.mark.parametrize(("before", "fields", "code", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_configurations(before: str, fields: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(GpuhookError) as caught:
        configured("docker", files(before), **{"version": RECENT, **fields})
    assert caught.value.code == code
    assert said in caught.value.message


def test_file_that_is_not_utf8_is_refused() -> None:
    for content in (b'{"a": "\xff"}', '{"a": 1}'.encode("utf-16")):
        with pytest.raises(GpuhookError) as caught:
            configured("docker", {PATH: content})
        assert caught.value.code == "GH2003"


UNIT = "/usr/lib/systemd/system/docker.service"
DROP_IN = "/etc/systemd/system/docker.service.d/nvidia.conf"
PLAIN = b"[Service]\nExecStart=/usr/bin/dockerd -H fd://\n"
FLAGGED = (
    b"[Service]\nExecStart=\n# NVIDIA's\nExecStart=/usr/bin/dockerd -H fd:// \\\n"
    b"  --add-runtime=nvidia=/usr/bin/nvidia-container-runtime\n"
)


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ({UNIT: PLAIN, DROP_IN: FLAGGED}, f"{DROP_IN}:4: dockerd has the flag --add-runtime"),
        ({UNIT: FLAGGED}, f"{UNIT}:4: "),
        (
            {
                UNIT: b"[Service]\nEnvironmentFile=-/etc/default/docker\n"
                b"ExecStart=/usr/bin/dockerd $DOCKER_OPTS\n",
                "/etc/default/docker": b'# as ever\nDOCKER_OPTS="--add-runtime a=/b --debug"\n',
            },
            "/etc/default/docker:2: ",
        ),
        (
            {
                UNIT: b"[Service]\nEnvironmentFile=/etc/default/docker\nEnvironment=OPTS=-D\n"
                b"ExecStart=/usr/bin/dockerd $OPTS\n",
                "/etc/default/docker": b"OPTS=--add-runtime=a=/b\n",
            },
            "/etc/default/docker:1: ",
        ),
    ],
    ids=["drop-in", "unit", "environment file", "environment file before a variable"],
)
def test_conflicting_flag_of_dockerd_is_refused(units: dict[str, bytes], said: str) -> None:
    """dockerd would not start, so nothing is written."""
    with pytest.raises(GpuhookError) as caught:
        configured("docker", units)
    assert caught.value.code == "GH2044"
    assert said in caught.value.message


@pytest.mark.parametrize(
    "units",
    [
        {UNIT: FLAGGED, DROP_IN: b"[Service]\nExecStart=\nExecStart=/usr/bin/dockerd\n"},
        {UNIT: FLAGGED, "/etc/systemd/system/docker.service": PLAIN},
        {
            "/usr/lib/systemd/system/docker.service.d/nvidia.conf": FLAGGED,
            DROP_IN: b"",
            UNIT: PLAIN,
        },
        {
            UNIT: b"[Service]\nEnvironmentFile=/etc/d\nEnvironment=A=--add-runtime=a=/b\n"
            b"ExecStart=/usr/bin/dockerd $A $B\n",
            DROP_IN: b"[Service]\nEnvironmentFile=\nEnvironment=\n",
            "/etc/d": b"B=--add-runtime=a=/b\n",
        },
    ],
    ids=["reset", "another unit", "masked", "variables reset"],
)
def test_other_flags_are_no_conflict(units: dict[str, bytes]) -> None:
    assert configured("docker", units, version=RECENT)[PATH].decode() == NEW


def test_config_file_flag_of_dockerd_applies() -> None:
    unit = b"[Service]\nExecStart=/usr/bin/dockerd --config-file /etc/other.json\n"
    assert configured("docker", {UNIT: unit}, version=RECENT)["/etc/other.json"].decode() == NEW
    assert configure_docker.plan(node({UNIT: unit}), wanted()).config == "/etc/other.json"
    chosen = configured("docker", {UNIT: unit}, version=RECENT, config="/a.json")
    assert chosen["/a.json"].decode() == NEW


def test_plan_reports_whether_a_restart_stops_containers() -> None:
    """The plan also says whether a restart is needed."""
    needed = configure_docker.plan(node({}, version=(27, 0)), wanted())
    assert needed.service.ends_containers
    assert not needed.service.reloads
    for found in (
        configure_docker.plan(node({}, version=RECENT), wanted()),
        configure_docker.plan(node(files('{"live-restore": true}'), version=(27, 0)), wanted()),
    ):
        assert found.service.reloads or not found.service.ends_containers


def test_rootless_docker() -> None:
    found = configure_docker.plan(node({}, home="/home/me", version=RECENT), wanted())
    (change,) = found.changes
    assert change.path == "/home/me/.config/docker/daemon.json"
    assert any("--user" in note for note in found.notes)


def test_docker_snap() -> None:
    there = {"/var/snap/docker/current/config/a": b""}
    with pytest.raises(GpuhookError) as caught:
        configure_docker.plan(node(there), wanted())
    assert caught.value.code == "GH2046"
    (change,) = configure_docker.plan(node(there), wanted(route="cdi")).changes
    assert change.path == reading.SNAP_PATH
    beside = {**there, "/usr/bin/dockerd": b""}
    assert configure_docker.plan(node(beside), wanted()).changes[0].path == PATH


def test_docker_desktop_has_a_note() -> None:
    found = configure_docker.plan(node({"/mnt/wsl/docker-desktop/x": b""}), wanted())
    assert any("Docker Desktop" in note for note in found.notes)


def test_reload_is_enough_for_runtimes() -> None:
    """dockerd reloads runtimes and the default runtime, but not the CDI driver and the hook."""
    recent = configure_docker.plan(node({}, version=RECENT), wanted(is_default=True))
    assert recent.service.reloads
    assert not configure_docker.plan(node({}, version=(27, 0)), wanted()).service.reloads
    assert not configure_docker.plan(node({}, version=RECENT), wanted(route="hook")).service.reloads


FRONT = "/usr/local/bin/nvidia-container-runtime-hook"
THEIR_HOOK = "/usr/bin/nvidia-container-runtime-hook"


def test_integration_hook_writes_a_launcher() -> None:
    after = configured("docker", {}, route="hook")
    assert list(after) == [FRONT]
    assert after[FRONT].startswith(b"#!/bin/sh\n")
    assert f'exec "{HOOK}" "$@"\n'.encode() in after[FRONT]
    (change,) = configure_docker.plan(node({}), wanted(route="hook")).changes
    assert change.mode == 0o755
    assert undone("docker", {}, route="hook") == {}


@pytest.mark.parametrize("where", [THEIR_HOOK, "/usr/local/sbin/nvidia-container-runtime-hook"])
def test_hook_of_another_program_is_refused(where: str) -> None:
    """With takes_over, dockerd finds gpuhook's first. The file of a package is kept."""
    before = {where: b"\x7fELF"}
    with pytest.raises(GpuhookError) as caught:
        configured("docker", before, route="hook")
    assert caught.value.code == "GH2048"
    after = configured("docker", before, route="hook", takes_over=True)
    first = where if "sbin" in where else FRONT
    assert HOOK.encode() in after[first]
    assert where == first or after[where] == b"\x7fELF"


def test_hook_name_that_is_gpuhooks_already_is_kept() -> None:
    packaged = {THEIR_HOOK: b'#!/bin/sh\nexec "/usr/bin/gpuhook-hook" "$@"\n'}
    assert configured("docker", packaged, route="hook") == packaged


def test_launcher_replaced_by_another_program_is_kept() -> None:
    assert configure_docker.without(FRONT, b"#!/bin/sh\n", wanted(route="hook")) == b"#!/bin/sh\n"
