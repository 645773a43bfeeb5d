# SPDX-License-Identifier: Apache-2.0
"""Who requests no GPU is not touched; what gpuhook does not know stays as it is."""

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
                "negative": -0.0, "escaped": "\\u00e9\\ud83d\\ude00\\u0000", "empty": {},
                "list": [ ]},
"""


def odd(bundle: Bundle) -> bytes:
    """Write config.json as no encoder would, return its bytes."""
    text = bundle.file.read_text(encoding="utf-8")
    text = "{" + ODD + text[1:].replace(": ", "  :\t", 5) + "\n\n"
    bundle.file.write_text(text, encoding="utf-8")
    return text.encode()


def fine(made: Installation) -> None:
    """Leave everything as it is."""


def broken_settings(made: Installation) -> None:
    """Write settings that are not YAML."""
    made.config.write_text("cdi: [\n", encoding="utf-8")


def unknown_setting(made: Installation) -> None:
    """Write settings of the wrong type."""
    made.config.write_text('{"cdi": {"specDirs": 7}}', encoding="utf-8")


def settings_directory(made: Installation) -> None:
    """Put a directory where the settings should be."""
    made.config.unlink()
    made.config.mkdir()


def no_node(made: Installation) -> None:
    """Take away the CDI specs, and what was made of them."""
    shutil.rmtree(made.specs)
    shutil.rmtree(made.state)


def broken_spec(made: Installation) -> None:
    """Break the CDI spec."""
    made.spec.write_text("devices: [", encoding="utf-8")


def no_state(made: Installation) -> None:
    """Put a file where the state directory should be."""
    shutil.rmtree(made.state)
    made.state.write_text("", encoding="utf-8")


def broken_state(made: Installation) -> None:
    """Fill every file of the state directory with nonsense."""
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
def test_same_bytes(
    command: str, trouble: Callable[[Installation], None], apart: Installation, bundle_of: Bundles
) -> None:
    """A container that requests no GPU starts with its config.json as it is, whatever is broken."""
    bundle = bundle_of("distroless", env=["NAME=nvidia"])
    before = odd(bundle)
    trouble(apart)
    if command == "run":
        assert apart.run(bundle).view.gpus() == {}
    else:
        with apart.lifecycle(bundle) as container:
            container.start()
    assert bundle.file.read_bytes() == before
    assert min(os.listdir(bundle.path)) == "config.json"


@pytest.mark.parametrize("trouble", TROUBLES)
def test_void_is_no_request(
    trouble: Callable[[Installation], None], apart: Installation, bundle_of: Bundles
) -> None:
    """Neither is a container touched whose variable says `void`, whatever is broken."""
    bundle = bundle_of("distroless", env=asks("void"))
    before = odd(bundle)
    trouble(apart)
    assert apart.run(bundle).view.gpus() == {}
    assert bundle.file.read_bytes() == before


def replaceable(place: Path) -> Path:
    """Return a Python at `place` that can be broken later."""
    place.write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n', encoding="utf-8")
    place.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def breakable(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """Return a function that gives an installation whose Python is in the state that is named."""
    place = tmp_path_factory.mktemp("breakable")
    python = replaceable(place / "python3")
    usual = Installation(node8.place, install(place / "prefix", python), node8.node)

    def breaking(how: str) -> Installation:
        replaceable(python)
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

    return breaking


# Parts of the library, and what Python misses first without them.
GONE = {"gpuhook": "gpuhook", ".": "gpuhook_bundle", "gpuhook/errors": "gpuhook.errors"}


def _remove_library(library: Path, part: str) -> None:
    """Remove a part of the installed library, and the bundles that could replace it."""
    for bundled in library.glob("*.bundle"):
        bundled.unlink()
    path = library / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("part", GONE)
@pytest.mark.parametrize("low", ["recorded", "searched"])
def test_a_part_of_the_library_is_gone(
    part: str, low: str, breakable: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """A container without a GPU starts, and its standard error is its own. One with a GPU does not,
    and the engine's log says which module is missing.
    """
    made = breakable(part)
    env = made.on("runc") if low == "recorded" else made.env
    plain = run(bundle_of("distroless"), [made.runtime], env=env)
    assert plain.view.gpus() == {}
    assert plain.stderr == ""
    bundle = bundle_of("distroless", ["/probe"], asks("0"), annotations={"a": '"\\'})
    odd = bundle.path.with_name('a "b" \\c')
    os.rename(bundle.path, odd)
    result = run(odd, [made.runtime], env=env)
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
def test_without_python(
    how: str, low: str, breakable: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """If Python does not start, a container that names no GPU starts with its own bytes."""
    made = breakable(how)
    bundle = bundle_of("distroless")
    before = odd(bundle)
    env = made.on("runc") if low == "recorded" else made.env
    assert run(bundle, [made.runtime], env=env).view.gpus() == {}
    assert bundle.file.read_bytes() == before


@HOWS
def test_without_python_no_gpu(
    how: str, breakable: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """If Python does not start, a container that names a GPU does not either, and one line
    says why.
    """
    made = breakable(how)
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
    """Return a low-level runtime that writes down how it was called and exits with 37."""
    path = tmp_path / "recorder"
    path.write_text(RECORDER, encoding="utf-8")
    path.chmod(0o755)
    return path


ARGUMENTS = [
    ["state", "x"],
    ["--root", "/r", "--log=/dev/null", "--systemd-cgroup", "delete", "--force", "create"],
    ["exec", "--process", "/p", "x", "run", "", " ", "*", "$HOME", "`id`", "a\nb", "-b", "\\"],
    ["kill", b"\xff\xfe", b"\xc3\xa9".decode()],
    ["--version"],
    [],
    ["features"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_pass_through(
    arguments: list[str | bytes], node8: Installation, recorder: Path, tmp_path: Path
) -> None:
    """Other commands reach the low-level runtime word by word, with its streams, descriptors and
    exit status.
    """
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
    given = [os.fsencode(word) for word in arguments]
    assert record.read_bytes() == b"".join(word + b"\0" for word in given or [b""])
    held = [Path(f"{record}.{fd}").read_bytes() for fd in (0, 5, 7)]
    assert held == [b"in", b"FIVE", b"SEVEN"]


@pytest.mark.parametrize("value", ["0", "void"])
def test_create_passes_everything_on(
    value: str, node8: Installation, recorder: Path, tmp_path: Path, bundle_of: Bundles
) -> None:
    """So does `create`, for a container with and without GPUs."""
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
    """`--preserve-fds` hands descriptors to a container that gets a GPU."""
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
    """The process that the engine started becomes the low-level runtime: it gets its signals."""
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


def exactly(text: bytes) -> Any:
    """Return what a JSON text says, numbers as they are spelled, objects as lists of pairs."""
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=list)


def test_unknown_fields_stay(node8: Installation, bundle_of: Bundles) -> None:
    """Unknown fields, big numbers and odd encodings survive in a GPU container's config.json."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    before = exactly(odd(bundle))
    view = node8.run(bundle).view
    assert set(view.gpus()) == {*CONTROL, node8.device(1)}
    after = exactly(bundle.file.read_bytes())
    assert [name for name, _ in after][: len(before)] == [name for name, _ in before]
    changed = {name for name, value in before if dict(after)[name] != value}
    assert changed == {"process", "mounts", "linux"}
    kept = dict(after)["x-vendor"]
    assert dict(kept)["big"] == "123456789012345678901234567890"
    assert [dict(kept)[k] for k in ("float", "exponent", "negative")] == ["1.50", "1e+05", "-0.0"]
    assert dict(kept)["escaped"] == "\u00e9\U0001f600\0"


def test_owner_and_mode_stay(node8: Installation, bundle_of: Bundles) -> None:
    """An edited config.json keeps its mode and its owner."""
    bundle = bundle_of("distroless", ["/probe"], asks("1"))
    bundle.file.chmod(0o640)
    os.chown(bundle.file, 1234, 4321)
    assert node8.edit(bundle).rc == 0
    found = bundle.file.stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o640, 1234, 4321)
    assert bundle.config()["linux"]["devices"]


def test_variables_without_a_value(node8: Installation, bundle_of: Bundles) -> None:
    """Entries of env without '=', empty ones and doubled ones stay where they are."""
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
def test_absent_parts_are_made(absent: str, node8: Installation, bundle_of: Bundles) -> None:
    """A config.json that lacks a part which the GPU goes into gets that part."""
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


def test_no_process(node8: Installation, bundle_of: Bundles) -> None:
    """A config.json without `process` is left alone, or gets what its annotation asks for."""
    bundle = bundle_of("distroless", ["/probe"], process=None)
    before = bundle.file.read_bytes()
    assert node8.edit(bundle).rc == 0
    assert bundle.file.read_bytes() == before

    names = {"cdi.k8s.io/plugin": "nvidia.com/gpu=1"}
    asking = bundle_of("musl", ["/probe"], annotations=names, process=None)
    result = node8.edit(asking)
    assert result.rc == 0, result
    assert {d["path"] for d in asking.config()["linux"]["devices"]} == {*CONTROL, node8.device(1)}


def test_no_driver(apart: Installation, bundle_of: Bundles, tmp_path: Path) -> None:
    """On a node without a driver, an image that says `all` starts as it is, and the log says so;
    one that was given a GPU is refused.
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
    given = bundle_of("musl", ["/probe"], asks("0"))
    before = given.file.read_bytes()
    result = run(given, [apart.runtime], env=env)
    assert result.rc == 1
    assert "GH1104" in result.stderr
    assert given.file.read_bytes() == before
