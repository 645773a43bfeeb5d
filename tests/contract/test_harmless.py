# SPDX-License-Identifier: Apache-2.0
"""Containers without a GPU request are not changed; unknown fields remain in the others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import CONTROL, PYTHON, Installation, asks, install
from tests.contract.runtimes import SECONDS, run, run_command

ODD = """
  "x-vendor" : {"big": 123456789012345678901234567890, "float": 1.50, "exponent": 1e+05,
                "negative": -0.0, "escaped": "\\u00e9\\ud83d\\ude00\\u0001", "empty": {},
                "list": [ ]},
"""


def write_odd_json(bundle: Bundle) -> bytes:
    """Write config.json as no encoder does; return its bytes."""
    text = bundle.file.read_text(encoding="utf-8")
    text = "{" + ODD + text[1:].replace(": ", "  :\t", 5) + "\n\n"
    bundle.file.write_text(text, encoding="utf-8")
    return text.encode()


def fine(made: Installation) -> None:
    """Leave everything unchanged."""


def broken_settings(made: Installation) -> None:
    """Write settings that are not YAML."""
    made.config.write_text("cdi: [\n", encoding="utf-8")


def unknown_setting(made: Installation) -> None:
    """Write settings of a wrong type."""
    made.config.write_text('{"cdi": {"specDirs": 7}}', encoding="utf-8")


def settings_directory(made: Installation) -> None:
    """Replace the settings file with a directory."""
    made.config.unlink()
    made.config.mkdir()


def no_node(made: Installation) -> None:
    """Remove the CDI specs, and the compiled ones."""
    shutil.rmtree(made.specs)
    shutil.rmtree(made.state)


def broken_spec(made: Installation) -> None:
    """Truncate the CDI spec."""
    made.spec.write_text("devices: [", encoding="utf-8")


def no_state(made: Installation) -> None:
    """Replace the state directory with a file."""
    shutil.rmtree(made.state)
    made.state.write_text("", encoding="utf-8")


def broken_state(made: Installation) -> None:
    """Overwrite each file of the state directory with invalid bytes."""
    for path in made.state.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\0nonsense")


TROUBLES = [
    fine,
    broken_settings,
    unknown_setting,
    settings_directory,
    no_node,
    broken_spec,
    no_state,
    broken_state,
]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("command", ["create", "run"])
def test_config_json_without_request_keeps_its_bytes(
    command: str, trouble: Callable[[Installation], None], apart: Installation, bundle_of: Bundles
) -> None:
    """Without a GPU request, config.json is unchanged, whatever is broken."""
    bundle = bundle_of("distroless", env=["NAME=nvidia"])
    before = write_odd_json(bundle)
    trouble(apart)
    if command == "run":
        assert apart.run(bundle).view.gpus() == {}
    else:
        with apart.lifecycle(bundle) as container:
            container.start()
    assert bundle.file.read_bytes() == before
    assert min(os.listdir(bundle.path)) == "config.json"


@pytest.mark.parametrize("trouble", TROUBLES)
def test_void_keeps_the_bytes_of_config_json(
    trouble: Callable[[Installation], None], apart: Installation, bundle_of: Bundles
) -> None:
    """A container with `void` starts with its config.json unchanged, whatever is broken."""
    bundle = bundle_of("distroless", env=asks("void"))
    before = write_odd_json(bundle)
    trouble(apart)
    assert apart.run(bundle).view.gpus() == {}
    assert bundle.file.read_bytes() == before


def write_python(place: Path) -> Path:
    """Write a Python launcher that a test can break."""
    place.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n', encoding="utf-8")
    place.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def installation_with_python(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """Return a function: state of Python or missing part of the library -> an installation."""
    place = tmp_path_factory.mktemp("breakable")
    python = write_python(place / "python3")
    usual = Installation(node8.place, install(place / "prefix", python), node8.node)

    def make(how: str) -> Installation:
        write_python(python)
        if how in GONE:
            made = Installation(
                node8.place, install(tmp_path_factory.mktemp("gone"), PYTHON), node8.node
            )
            _remove_library(made.bindir.parent / "lib/gpuhook", how)
            return made
        if how == "missing":
            python.unlink()
        elif how == "failing":
            python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        elif how == "killed":
            python.write_text("#!/bin/sh\nkill -9 $$\n", encoding="utf-8")
        elif how == "no executable":
            python.chmod(0o644)
        return usual

    return make


# Parts of the library, and the first module that Python misses without them.
GONE = {"gpuhook": "gpuhook", ".": "gpuhook_bundle", "gpuhook/errors": "gpuhook.errors"}


def _remove_library(library: Path, part: str) -> None:
    """Remove a part of the installed library, and the bundles that could replace it."""
    for bundled in library.glob("*.bundle"):
        bundled.unlink()
    path = library / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("part", GONE)
@pytest.mark.parametrize("low", ["recorded", "searched"])
def test_missing_library_stops_gpu_containers_only(
    part: str, low: str, installation_with_python: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """If a part of the library is missing, a container without a GPU starts without messages, and
    one with a GPU is refused: the log names the missing module.
    """
    made = installation_with_python(part)
    env = made.on("runc") if low == "recorded" else made.env
    plain = run(bundle_of("distroless"), [made.runtime], env=env)
    assert plain.view.gpus() == {}
    assert plain.stderr == ""
    bundle = bundle_of("distroless", ["/probe"], asks("0"), annotations={"a": '"\\'})
    odd_path = bundle.path.with_name('a "b" \\c')
    os.rename(bundle.path, odd_path)
    result = run(odd_path, [made.runtime], env=env)
    assert result.rc == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("gpuhook-runtime: error GH1404: ")
    assert f"No module named '{GONE[part]}'" in line
    (entry,) = [json.loads(one) for one in result.log.splitlines()]
    assert entry["level"] == "error"
    assert entry["msg"].startswith("gpuhook-runtime: error GH1404: ")
    assert f"No module named '{GONE[part]}'" in entry["msg"]


HOWS = pytest.mark.parametrize("how", ["missing", "failing", "killed", "no executable"])
LOW = pytest.mark.parametrize("low", ["recorded", "searched"])


@HOWS
@LOW
def test_container_without_request_starts_without_python(
    how: str, low: str, installation_with_python: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """If Python does not start, a container without a request starts unchanged."""
    made = installation_with_python(how)
    bundle = bundle_of("distroless")
    before = write_odd_json(bundle)
    env = made.on("runc") if low == "recorded" else made.env
    assert run(bundle, [made.runtime], env=env).view.gpus() == {}
    assert bundle.file.read_bytes() == before


@pytest.mark.parametrize("escaped", ["\\u004eVIDIA_VISIBLE_DEVICES=0", "A=\\/"])
def test_escaped_characters_may_be_a_request(
    escaped: str, installation_with_python: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """Without Python, nothing reads them."""
    made = installation_with_python("missing")
    bundle = bundle_of("distroless", ["/probe"], ["ESCAPED"])
    text = bundle.file.read_text("utf-8").replace("ESCAPED", escaped)
    bundle.file.write_text(text, "utf-8")
    result = made.run(bundle)
    assert result.rc == 1
    assert "GH1404" in result.stderr


@HOWS
def test_gpu_container_is_refused_without_python(
    how: str, installation_with_python: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """If Python does not start, a container with a GPU request is refused, in one line."""
    made = installation_with_python(how)
    bundle = bundle_of("distroless", ["/probe"], asks("0"))
    before = bundle.file.read_bytes()
    result = made.run(bundle)
    assert result.rc == 1
    (line,) = [line for line in result.stderr.splitlines() if "GH1404" in line]
    assert str(made.bindir.parent.parent / "python3") in line
    assert bundle.file.read_bytes() == before


RECORDER = """#!/bin/sh
printf '%s\\0' "$@" > "$RECORD"
for fd in 0 5 7; do { cat <&$fd; } 2>/dev/null >> "$RECORD.$fd"; done
echo out; echo err >&2
exit 37
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """Return a low-level runtime that records how it was called and exits with 37."""
    path = tmp_path / "recorder"
    path.write_text(RECORDER, encoding="utf-8")
    path.chmod(0o755)
    return path


ARGUMENTS = [
    ["state", "x"],
    ["--root", "/r", "--log=/dev/null", "--systemd-cgroup", "delete", "--force", "create"],
    ["exec", "--process", "/p", "x", "run", "", " ", "*", "$HOME", "`id`", "a\nb", "-b", "\\"],
    ["kill", b"\xff\xfe", b"\xc3\xa9".decode()],
    ["--help"],
    [],
    ["features"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_other_commands_pass_through(
    arguments: list[str | bytes], node8: Installation, recorder: Path, tmp_path: Path
) -> None:
    """The low-level runtime gets the arguments, streams and descriptors of other commands."""
    record = tmp_path / "record"
    env = {**os.environ, **node8.on(str(recorder), RECORD=str(record))}
    script = 'exec "$@" 5<"$FIVE" 7<"$SEVEN"'
    for name in ("FIVE", "SEVEN"):
        (tmp_path / name).write_text(name, encoding="utf-8")
        env[name] = str(tmp_path / name)
    done = subprocess.run(
        ["sh", "-c", script, "sh", node8.runtime, *arguments],
        input=b"in",
        capture_output=True,
        env=env,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 37
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    expected = [os.fsencode(word) for word in arguments]
    assert record.read_bytes() == b"".join(word + b"\0" for word in expected or [b""])
    inputs = [Path(f"{record}.{fd}").read_bytes() for fd in (0, 5, 7)]
    assert inputs == [b"in", b"FIVE", b"SEVEN"]


@pytest.mark.parametrize("value", ["0", "void"])
def test_create_passes_arguments_and_descriptors(
    value: str, node8: Installation, recorder: Path, tmp_path: Path, bundle_of: Bundles
) -> None:
    """create passes its arguments, streams and descriptors, with and without GPUs."""
    record = tmp_path / "record"
    bundle = bundle_of("distroless", ["/probe"], asks(value))
    words = [b"--root", b"/r\xff", b"create", b"--bundle", os.fsencode(bundle.path)]
    words += [b"--no-pivot", b"--preserve-fds", b"5", b"--pid-file=/tmp/p q", b"gpu-1"]
    (tmp_path / "FIVE").write_text("FIVE", encoding="utf-8")
    script = 'exec "$@" 5<"$FIVE"'
    env = node8.on(str(recorder), RECORD=str(record), FIVE=str(tmp_path / "FIVE"))
    done = subprocess.run(
        ["sh", "-c", script, "sh", node8.runtime, *words],
        input=b"in",
        capture_output=True,
        env={**os.environ, **env},
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 37, done
    assert done.stdout == b"out\n"
    assert record.read_bytes() == b"".join(word + b"\0" for word in words)
    assert [Path(f"{record}.{fd}").read_bytes() for fd in (0, 5)] == [b"in", b"FIVE"]


def test_descriptors_reach_the_container(
    node8: Installation, bundle_of: Bundles, tmp_path: Path
) -> None:
    """--preserve-fds passes descriptors to a container with a GPU."""
    passed = tmp_path / "passed"
    passed.write_text("through\n", encoding="utf-8")
    bundle = bundle_of("debian", ["/bin/sh", "-c", "cat <&3; ls /dev"], asks("0"))
    words = ["--root", str(bundle.path / "state"), "run", "--preserve-fds", "1"]
    words += ["--bundle", str(bundle.path), "gpuhook-test-fds"]
    done = run_command(
        ["sh", "-c", 'exec "$@" 3<"$PASSED"', "sh", node8.runtime, *words],
        {**os.environ, **node8.on("runc", PASSED=str(passed))},
    )
    assert done.stdout.startswith("through\n"), done
    assert "nvidia0" in done.stdout


@pytest.mark.parametrize("word", ["kill", "create"])
def test_signals_reach_the_runtime(
    word: str, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The process that the engine started becomes the low-level runtime, and gets its signals."""
    script = '#!/bin/sh\ntrap "exit 42" TERM\necho $$\nwhile :; do sleep 0.1; done\n'
    low = tmp_path / "low"
    low.write_text(script, encoding="utf-8")
    low.chmod(0o755)
    bundle = bundle_of("distroless", ["/probe"], asks("0"))
    with subprocess.Popen(
        [node8.runtime, word, "--bundle", str(bundle.path), "x"],
        stdout=subprocess.PIPE,
        env={**os.environ, **node8.on(str(low))},
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 42


def exact_json(text: bytes) -> Any:
    """Parse JSON with numbers as text and objects as lists of pairs."""
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=list)


def test_unknown_fields_remain(node8: Installation, bundle_of: Bundles) -> None:
    """Unknown fields, big numbers and odd encodings remain in a GPU container's config.json."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    before = exact_json(write_odd_json(bundle))
    view = node8.run(bundle).view
    assert set(view.gpus()) == {*CONTROL, node8.device(1)}
    after = exact_json(bundle.file.read_bytes())
    assert [name for name, _ in after][: len(before)] == [name for name, _ in before]
    changed = {name for name, value in before if dict(after)[name] != value}
    assert changed == {"process", "mounts", "linux"}
    vendor_field = dict(after)["x-vendor"]
    assert dict(vendor_field)["big"] == "123456789012345678901234567890"
    assert [dict(vendor_field)[k] for k in ("float", "exponent", "negative")] == [
        "1.50",
        "1e+05",
        "-0.0",
    ]
    assert dict(vendor_field)["escaped"] == "\u00e9\U0001f600\1"


def test_owner_and_mode_remain(node8: Installation, bundle_of: Bundles) -> None:
    """An edited config.json keeps its mode and its owner."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    bundle.file.chmod(0o640)
    os.chown(bundle.file, 1234, 4321)
    assert node8.edit(bundle).rc == 0
    status = bundle.file.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o640, 1234, 4321)
    assert bundle.config()["linux"]["devices"]


def test_unusual_variables_remain(node8: Installation, bundle_of: Bundles) -> None:
    """Entries of env without '=', empty ones and duplicate ones remain in their order."""
    env = ["BARE", "", "=x", "NVIDIA_VISIBLE_DEVICES", *asks("1"), "TWICE=1", "TWICE=2"]
    bundle = bundle_of("distroless", ["/probe"], env)
    before = bundle.config()["process"]["env"]
    result = node8.edit(bundle)
    assert result.rc == 0, result
    wanted = ["NVIDIA_VISIBLE_DEVICES=void" if e == asks("1")[0] else e for e in before]
    *kept, added = bundle.config()["process"]["env"]
    assert kept == wanted
    assert added.startswith("NVIDIA_CTK_LIBCUDA_DIR=")


@pytest.mark.parametrize("absent", ["linux", "linux.resources", "mounts", "process.user"])
def test_missing_parts_are_added(absent: str, node8: Installation, bundle_of: Bundles) -> None:
    """A config.json without a part that the edits need gets that part."""
    name, _, key = absent.partition(".")
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    config = bundle.config()
    del (config[name] if key else config)[key or name]
    bundle.write(config)
    result = node8.edit(bundle)
    assert result.rc == 0, result
    config = bundle.config()
    devices = {d["path"]: d for d in config["linux"]["devices"]}
    assert set(devices) == {*CONTROL, node8.device(1)}
    rules = config["linux"]["resources"]["devices"]
    numbers = [(d["major"], d["minor"]) for d in devices.values()]
    assert [(r["major"], r["minor"]) for r in rules if r["allow"]] == numbers
    assert config["mounts"]


def test_config_json_without_process(node8: Installation, bundle_of: Bundles) -> None:
    """A config.json without `process` is unchanged, or gets the devices of its annotation."""
    bundle = bundle_of("distroless", ["/probe"], process=None)
    before = bundle.file.read_bytes()
    assert node8.edit(bundle).rc == 0
    assert bundle.file.read_bytes() == before

    names = {"cdi.k8s.io/plugin": "nvidia.com/gpu=1"}
    annotated = bundle_of("musl", ["/probe"], annotations=names, process=None)
    result = node8.edit(annotated)
    assert result.rc == 0, result
    assert {d["path"] for d in annotated.config()["linux"]["devices"]} == {
        *CONTROL,
        node8.device(1),
    }


def test_node_without_a_driver(apart: Installation, bundle_of: Bundles, tmp_path: Path) -> None:
    """Without a driver, an image with `all` starts unchanged with a warning, and a container with
    an assigned GPU is refused.
    """
    (tmp_path / "empty").mkdir()
    env = apart.on("runc", GPUHOOK_HOST_ROOT=str(tmp_path / "empty"))
    bundle = bundle_of("distroless", ["/probe"], asks("all"))
    before = bundle.file.read_bytes()
    result = run(bundle, [apart.runtime], env=env)
    assert result.view.gpus() == {}
    assert bundle.file.read_bytes() == before
    assert "GH1008" in result.log
    shutil.rmtree(apart.specs)
    assigned = bundle_of("musl", ["/probe"], asks("0"))
    before = assigned.file.read_bytes()
    result = run(assigned, [apart.runtime], env=env)
    assert result.rc == 1
    assert "GH1104" in result.stderr
    assert assigned.file.read_bytes() == before
