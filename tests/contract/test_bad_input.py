# SPDX-License-Identifier: Apache-2.0
"""Bad input causes an error with a code, the cause and a hint, and no partial change."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import CONTROL, PYTHON, Installation, asks, install, installation
from tests.contract.runtimes import Result, run

FORMATS = pytest.mark.parametrize("log_format", ["json", "text"])
TEXT_LINE = re.compile(r'^time="[^"]+" level=(\w+) msg=("(?:[^"\\]|\\.)*")$')


def log_lines(log: str, log_format: str) -> list[tuple[str, str]]:
    """Return (level, message) of the lines of a --log file."""
    lines = log.splitlines()
    if log_format == "json":
        entries = [json.loads(line) for line in lines]
        assert all(set(entry) == {"level", "msg", "time"} for entry in entries)
        return [(entry["level"], entry["msg"]) for entry in entries]
    matches = [TEXT_LINE.match(line) for line in lines]
    assert all(matches), lines
    return [(match[1], json.loads(match[2])) for match in matches if match]


def assert_refused(result: Result, code: str, *words: str, log_format: str = "json") -> None:
    """Assert that a call ended with 1 and printed the code and `words` in its log and on stderr."""
    assert result.rc == 1, result
    assert result.stdout == ""
    level, message = log_lines(result.log, log_format)[-1]
    assert level == "error"
    for text in (message, result.stderr):
        assert code in text, text
        for word in words:
            assert word in text, text
    assert f"error {code}" in result.stderr
    assert "hint: " in result.stderr


def assert_unchanged(bundle: Bundle, before: bytes, made: Installation) -> None:
    """Assert that config.json, its directory and the ledger have not changed."""
    assert bundle.file.read_bytes() == before
    assert set(os.listdir(bundle.path)) <= {"config.json", "log", "state"}
    assert made.entries() == []


@pytest.fixture
def bundle(bundle_of: Bundles) -> Bundle:
    """Return a bundle that requests GPU 0."""
    return bundle_of("distroless", ["/probe"], asks("0"))


def set_request(bundle: Bundle, *env: str, **annotations: str) -> bytes:
    """Replace the variables and annotations of the bundle; return its new config.json."""
    config = bundle.config()
    config["process"]["env"] = ["PATH=/", *env]
    if annotations:
        config["annotations"] = annotations
    bundle.write(config)
    return bundle.file.read_bytes()


UUID = "GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"
UNKNOWN = "GPU-00000000-0000-4000-8000-000000000000"
MANY = ",".join(map(str, range(10_000)))


@pytest.mark.parametrize(
    ("value", "code", "word"),
    [
        ("99", "GH1102", "nvidia.com/gpu=99"),
        ("-1", "GH1101", "-1"),
        ("0,99", "GH1102", "nvidia.com/gpu=99"),
        (UNKNOWN, "GH1102", UNKNOWN),
        (f"{UNKNOWN}::1", "GH1102", UNKNOWN),
        ("0000:ff:00.0", "GH1102", "0000:ff:00.0"),
        (f"{UUID}::x", "GH1003", f"{UUID}::x"),
        (f"{UUID}::", "GH1003", f"{UUID}::"),
        (f"{UUID}::-1", "GH1003", f"{UUID}::-1"),
        (f"{UUID}::1::2", "GH1003", f"{UUID}::1::2"),
        (f"{UUID}::99999999", "GH1003", f"{UUID}::99999999"),
        (f"{UUID}::\u0663", "GH1003", UUID),
        ("::1", "GH1003", "::1"),
        ("other.com/gpu=0", "GH1009", "other.com/gpu"),
        ("other.com/gpu=all", "GH1009", "other.com/gpu"),
        ("nvidia.com/gpu=a b", "GH1101", "a b"),
        ("../../etc/shadow", "GH1101", "../../etc/shadow"),
        ("GPU-\x1b[31mred", "GH1004", "\\x1b[31m"),
        ("0\n1", "GH1004", "0\\n1"),
        ("x" * 300, "GH1004", "xxx"),
        (MANY, "GH1005", "10000"),
    ],
)
def test_invalid_device_names_are_refused(
    value: str, code: str, word: str, node8: Installation, bundle: Bundle
) -> None:
    """A request for a missing device, or one that cannot be parsed, is refused."""
    before = set_request(bundle, *asks(value))
    entries = node8.entries()
    result = node8.edit(bundle)
    assert_refused(result, code, word)
    assert bundle.file.read_bytes() == before
    assert node8.entries() == entries
    assert len(result.stderr) < 2000
    assert result.stderr.replace("\n", "").isprintable()


@FORMATS
def test_log_has_the_configured_format(
    log_format: str, apart: Installation, bundle: Bundle
) -> None:
    """The error in the engine's log has the format of --log-format."""
    before = set_request(bundle, *asks('9"9\\'))
    result = apart.edit(bundle, log_format=log_format)
    assert_refused(result, "GH1101", '9"9\\', log_format=log_format)
    assert_unchanged(bundle, before, apart)


def test_unknown_driver_capability_is_refused(apart: Installation, bundle: Bundle) -> None:
    before = set_request(bundle, *asks("0", "compute,magic"))
    assert_refused(apart.edit(bundle), "GH1020", "magic", "utility")
    assert_unchanged(bundle, before, apart)


def test_unknown_cdi_name_in_annotation_is_refused(apart: Installation, bundle: Bundle) -> None:
    before = set_request(bundle, **{"cdi.k8s.io/x": "nvidia.com/gpu=17"})
    assert_refused(apart.edit(bundle), "GH1102", "nvidia.com/gpu=17", str(apart.spec))
    assert_unchanged(bundle, before, apart)


def conflict(made: Installation) -> list[str]:
    """Describe the GPUs twice in one directory."""
    shutil.copy(made.spec, made.specs / "other.yaml")
    return ["GH1103", str(made.spec), str(made.specs / "other.yaml")]


def broken_yaml(made: Installation) -> list[str]:
    """Truncate the spec."""
    text = made.spec.read_text(encoding="utf-8")
    made.spec.write_text(text[: len(text) // 2] + '\n- "', encoding="utf-8")
    return ["GH1104", str(made.spec), "is broken"]


def broken_json(made: Installation) -> list[str]:
    """Replace the spec with a truncated JSON file."""
    made.spec.unlink()
    (made.specs / "nvidia.json").write_text('{"cdiVersion": ', encoding="utf-8")
    return ["GH1104", str(made.specs / "nvidia.json"), "is broken"]


def changed_spec(made: Installation, change: Callable[[Any], None]) -> str:
    """Change the spec's document; return its path."""
    document = yaml.safe_load(made.spec.read_text(encoding="utf-8"))
    change(document)
    made.spec.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(made.spec)


def unknown_field(made: Installation) -> list[str]:
    """Add a field to a device node that CDI does not define."""

    def add(document: Any) -> None:
        document["devices"][0]["containerEdits"]["deviceNodes"][0]["colour"] = "green"

    pointer = "/devices/0/containerEdits/deviceNodes/0/colour"
    return ["GH1104", changed_spec(made, add), pointer]


def too_new(made: Installation) -> list[str]:
    """Declare a future version of CDI."""
    path = changed_spec(made, lambda document: document.update(cdiVersion="9.0.0"))
    return ["GH1104", path, "9.0.0"]


def missing_node(made: Installation) -> list[str]:
    """Name a device node that the host does not have."""
    text = made.spec.read_text(encoding="utf-8")
    missing = f"{made.node.dev_root}/dev/nvidia0-gone"
    made.spec.write_text(
        text.replace(f"{made.node.dev_root}/dev/nvidia0", missing), encoding="utf-8"
    )
    return ["GH1302", missing]


def not_a_node(made: Installation) -> list[str]:
    """Name a regular file as a device node."""
    path = made.place / "regular"
    path.touch()
    text = made.spec.read_text(encoding="utf-8")
    text = text.replace(f"{made.node.dev_root}/dev/nvidia0", str(path))
    made.spec.write_text(text, encoding="utf-8")
    return ["GH1302", str(path)]


def stale(made: Installation) -> list[str]:
    """Change the driver version in the spec's fingerprint."""
    made.refuse_stale()
    text = made.spec.read_text(encoding="utf-8")
    made.spec.write_text(text.replace("driver=5", "driver=4"), encoding="utf-8")
    return ["GH1120", "driver: was 480.95.05, is 580.95.05"]


def no_spec(made: Installation) -> list[str]:
    """Remove the spec."""
    made.refuse_stale()
    made.spec.unlink()
    return ["GH1104", str(made.specs), "gpuhook refresh"]


def unwritable_state(made: Installation) -> list[str]:
    """Replace the state directory with a file."""
    shutil.rmtree(made.state)
    made.state.touch()
    return ["GH1105", str(made.config)]


def broken_settings(made: Installation) -> list[str]:
    """Write an unknown key of a wrong type into the settings."""
    made.config.write_text("cdi: {specDirs: 7}\n", encoding="utf-8")
    return ["GH1530", str(made.config), "specDirs"]


NODES = [
    conflict, broken_yaml, broken_json, unknown_field, too_new, missing_node, not_a_node, stale,
    no_spec, unwritable_state, broken_settings,
]  # fmt: skip


@pytest.mark.parametrize("spoil", NODES)
def test_broken_node_is_refused(
    spoil: Callable[[Installation], list[str]], apart: Installation, bundle: Bundle
) -> None:
    """A create fails on a node whose CDI specs, device nodes, settings or state are broken."""
    before = bundle.file.read_bytes()
    code, *words = spoil(apart)
    for _ in range(2):  # the second create reads the compiled state of the first one
        assert_refused(apart.edit(bundle), code, *words)
        assert_unchanged(bundle, before, apart)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (broken_yaml, "GH1109"),
        (broken_json, "GH1109"),
        (unknown_field, "GH1106"),
        (too_new, "GH1107"),
    ],
)
def test_validate_reports_a_broken_spec(
    spoil: Callable[[Installation], list[str]], code: str, apart: Installation
) -> None:
    """`gpuhook cdi validate` reports the code and the path of a broken spec."""
    _, *words = spoil(apart)
    done = apart.gpuhook("cdi", "validate", words[0])
    assert done.rc == 1
    assert code in done.stdout + done.stderr
    assert words[0] in done.stdout + done.stderr


def test_broken_spec_of_another_vendor_is_ignored(apart: Installation, bundle: Bundle) -> None:
    """Broken spec files of other names do not prevent a container from getting its GPU."""
    (apart.specs / "aaa.yaml").write_text("devices: [", encoding="utf-8")
    (apart.specs / "zzz.json").write_text("{", encoding="utf-8")
    (apart.specs / "loop.json").symlink_to("loop.json")
    (apart.specs / "directory.yaml").mkdir()
    assert apart.edit(bundle).rc == 0
    assert bundle.config()["linux"]["devices"]


@pytest.mark.parametrize("value", ["0", "void"])
@pytest.mark.parametrize("names", ["nowhere,/no/where", "itself"])
def test_missing_low_level_runtime_is_refused(
    names: str, value: str, node8: Installation, bundle: Bundle, tmp_path: Path
) -> None:
    """Without a low-level runtime each container is refused; gpuhook-runtime never calls itself."""
    listed = [node8.runtime] if names == "itself" else names.split(",")
    made = node8.apart(tmp_path / "none", runtime={"lowLevelRuntimes": listed})
    before = set_request(bundle, *asks(value))
    result = made.edit(bundle, env={"GPUHOOK_LOW_LEVEL_RUNTIME": ""})
    assert_refused(result, "GH1401", ", ".join(listed))
    assert_unchanged(bundle, before, made)


def test_missing_named_low_level_runtime_is_refused(apart: Installation, bundle: Bundle) -> None:
    """If the low-level runtime that the engine names is missing, no other one is called."""
    result = apart.edit(bundle, low_level="/no/such/runtime")
    assert_refused(result, "GH1401", "/no/such/runtime")


def test_missing_config_json_is_refused(apart: Installation, bundle: Bundle) -> None:
    bundle.file.unlink()
    assert_refused(apart.edit(bundle), "GH1300", str(bundle.file))
    assert set(os.listdir(bundle.path)) == {"log"}


BROKEN = [
    '{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]',
    '["NVIDIA_VISIBLE_DEVICES=0"]',
    '"NVIDIA_VISIBLE_DEVICES=0"',
    '{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}} {}',
    "NVIDIA_VISIBLE_DEVICES=0\xff",
    '{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}, "x": '
    + "[" * 100_000
    + "]" * 100_000
    + "}",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_malformed_config_json_is_refused(text: str, apart: Installation, bundle: Bundle) -> None:
    """A config.json that is not a JSON object is refused."""
    bundle.file.write_text(text, encoding="latin-1")
    before = bundle.file.read_bytes()
    assert_refused(apart.edit(bundle), "GH1301", str(bundle.file))
    assert_unchanged(bundle, before, apart)


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_config_json_that_is_no_regular_file_is_refused(
    kind: str, apart: Installation, bundle: Bundle
) -> None:
    """A pipe, a directory or a device in place of config.json is not read."""
    bundle.file.unlink()
    if kind == "fifo":
        os.mkfifo(bundle.file)
    elif kind == "directory":
        bundle.file.mkdir()
    else:
        os.mknod(bundle.file, 0o020666, os.makedev(1, 5))
    assert_refused(apart.edit(bundle), "GH13", str(bundle.file))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("linux", 7),
        ("linux", []),
        ("linux.devices", {}),
        ("linux.resources", "x"),
        ("linux.resources.devices", 7),
        ("mounts", {}),
        ("process.user", 7),
        ("root", None),
        ("root", 7),
        ("root.path", ""),
        ("root.path", 7),
        ("root.path", "/no/such/root"),
        ("hooks", 7),
        ("hooks.createContainer", 7),
        ("annotations", 7),
    ],
)
def test_wrong_type_in_config_json_causes_no_crash(
    where: str, value: object, apart: Installation, bundle: Bundle
) -> None:
    """A value of a wrong type is refused with its place, or does not matter."""
    config = bundle.config()
    *path, last = where.split(".")
    parent = config
    for key in path:
        parent = parent.setdefault(key, {})
    parent[last] = value
    bundle.write(config)
    before = bundle.file.read_bytes()
    result = apart.edit(bundle)
    assert "Traceback" not in result.stderr
    if result.rc == 0:
        assert where in ("annotations", "hooks", "hooks.createContainer", "process.user")
        assert bundle.config()["linux"]["devices"]
    else:
        assert_refused(result, "GH13", where.rpartition(".")[2])
        assert_unchanged(bundle, before, apart)


def test_entries_of_a_wrong_type_remain(apart: Installation, bundle: Bundle) -> None:
    """Entries of a wrong type remain in the lists that gpuhook extends, and the create succeeds."""
    config = bundle.config()
    config["process"]["env"] += [7, None, {"x": 1}]
    config["mounts"] += ["x", None, {"destination": 7}]
    config["linux"]["devices"] = [None, 7]
    config["linux"]["resources"]["devices"] += [None, "x"]
    config["annotations"] = {"a": 7}
    bundle.write(config)
    assert apart.edit(bundle).rc == 0
    after = bundle.config()
    odd = [entry for entry in after["process"]["env"] if not isinstance(entry, str)]
    assert odd == [7, None, {"x": 1}]
    assert [m for m in after["mounts"] if not isinstance(m, dict)] == ["x", None]
    assert after["linux"]["devices"][:2] == [None, 7]
    assert after["annotations"]["a"] == 7


def test_read_only_state_directory_causes_a_warning(apart: Installation, bundle: Bundle) -> None:
    """With a read-only state directory a container starts, and the log has a warning."""
    before = bundle.file.read_bytes()
    assert apart.edit(bundle).rc == 0
    bundle.file.write_bytes(before)
    shutil.rmtree(apart.state / "containers")
    script = f"mount --bind {apart.state} {apart.state} && mount -o remount,bind,ro {apart.state}"
    runtime = ["unshare", "--mount", "sh", "-c", script + ' && exec "$@"', "sh", apart.runtime]
    result = run(bundle, runtime, env=apart.on("runc"))
    assert set(result.view.gpus()) == {*CONTROL, apart.device(0)}
    assert "GH1410" in result.log
    assert apart.entries() == []


@contextmanager
def small_file_system(place: Path, size: str = "256k") -> Iterator[Path]:
    """Mount a tmpfs of this size at `place`."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> None:
    """Leave no free block in a file system."""
    with (place / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with pytest.raises(OSError, match="space"):
        (place / "more").write_bytes(b"x" * 100)
    (place / "more").unlink(missing_ok=True)


def test_full_bundle_file_system_keeps_config_json(
    apart: Installation, bundle: Bundle, tmp_path: Path
) -> None:
    """If the bundle's file system is full, config.json remains, and no temporary file is left."""
    before = bundle.file.read_bytes()
    with small_file_system(tmp_path / "full") as place:
        small_bundle = Bundle(place / "bundle", bundle.root)
        small_bundle.path.mkdir()
        small_bundle.file.write_bytes(before)
        fill(place)
        result = apart.edit(small_bundle)
        assert result.rc == 1
        assert "GH1490" in result.stderr
        assert str(small_bundle.path) in result.stderr
        assert "No space left" in result.stderr
        assert small_bundle.file.read_bytes() == before
        assert set(os.listdir(small_bundle.path)) <= {"config.json", "log"}
        assert apart.entries() == []
        (place / "filler").unlink()
        assert apart.edit(small_bundle).rc == 0
        assert small_bundle.config()["linux"]["devices"]


@pytest.mark.parametrize("prepared", [True, False])
def test_full_state_file_system_leaves_no_partial_file(
    prepared: bool, apart: Installation, bundle: Bundle, tmp_path: Path
) -> None:
    """If the state's disk is full, a container starts without an entry in the ledger, or is refused
    if no spec is compiled.
    """
    before = bundle.file.read_bytes()
    with small_file_system(apart.state, "4m") as state:
        if prepared:
            assert apart.edit(bundle).rc == 0
            bundle.file.write_bytes(before)
            shutil.rmtree(state / "containers")
        fill(state)
        result = apart.edit(bundle)
        if prepared:
            assert result.rc == 0, result
            assert [level for level, text in log_lines(result.log, "json") if "GH1410" in text] == [
                "warning"
            ]
            assert bundle.config()["linux"]["devices"]
        else:
            assert_refused(result, "GH1")
            assert bundle.file.read_bytes() == before
        temporary_files = [p for p in state.rglob("*") if p.name.startswith(".")]
        assert temporary_files == []


def test_full_root_file_system_is_refused(
    apart: Installation, bundle: Bundle, tmp_path: Path
) -> None:
    """If the container's root file system is full, the container is refused."""
    with small_file_system(tmp_path / "root", "16m") as place:
        subprocess.run(["cp", "-a", f"{bundle.root}/.", str(place)], check=True)
        config = bundle.config()
        config["root"]["path"] = str(place)
        bundle.write(config)
        before = bundle.file.read_bytes()
        fill(place)
        assert_refused(apart.edit(bundle), "GH1490", "No space left")
        assert_unchanged(bundle, before, apart)
        assert not [p for p in place.rglob("*") if p.name.startswith(".gpuhook-")]


# The hot path calls posix or os, and os copies the functions of posix when it is imported.
DYING = """
import posix, sys
left = int(posix.environ[b"KILL_AT"])
def dying(real):
    def call(*args, **named):
        global left
        left -= 1
        if left == 0:
            posix.kill(posix.getpid(), 9)
        return real(*args, **named)
    return call
for name in ("rename", "replace", "write", "open", "symlink", "fchmod"):
    setattr(posix, name, dying(getattr(posix, name)))
    if "os" in sys.modules:
        setattr(sys.modules["os"], name, getattr(posix, name))
code = sys.argv.pop(1)
exec(code)
"""


@pytest.fixture(scope="module")
def dying_installation(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Return an installation whose Python kills itself at the KILL_AT-th call that writes."""
    place = tmp_path_factory.mktemp("dying")
    (place / "dying.py").write_text(DYING, encoding="utf-8")
    python = place / "python3"
    script = f"""#!/bin/sh
if [ -n "$KILL_AT" ] && [ "$1" = -ISXutf8 ] && [ "$2" = -c ]; then
    shift 2
    exec {PYTHON} -IS {place}/dying.py "$@"
fi
exec {PYTHON} "$@"
"""
    python.write_text(script, encoding="utf-8")
    python.chmod(0o755)
    return installation(place / "stage", node8.node, install(place / "prefix", python))


@pytest.mark.thorough
def test_create_killed_at_each_write_keeps_config_json_whole(
    dying_installation: Installation, bundle: Bundle
) -> None:
    """A killed create leaves the old or the new config.json, and the next create succeeds."""
    before = bundle.file.read_bytes()
    assert dying_installation.edit(bundle).rc == 0
    after = bundle.file.read_bytes()
    assert after != before
    outcomes = []
    for step in range(1, 500):
        bundle.file.write_bytes(before)
        shutil.rmtree(bundle.root / "usr/lib", ignore_errors=True)
        shutil.rmtree(bundle.root / "etc/ld.so.conf.d", ignore_errors=True)
        (bundle.root / "etc/ld.so.cache").unlink(missing_ok=True)
        result = dying_installation.edit(bundle, env={"KILL_AT": str(step)})
        outcomes.append(bundle.file.read_bytes())
        if result.rc == 0:
            break
        assert "GH1404" in result.stderr
    assert set(outcomes) <= {before, after}
    assert outcomes[-1] == after
    assert len(outcomes) > 20
    bundle.file.write_bytes(before)
    assert dying_installation.edit(bundle).rc == 0
    assert bundle.file.read_bytes() == after
    for place in (bundle.root, bundle.path, dying_installation.state):
        assert [p for p in place.rglob("*") if p.name.startswith(".gpuhook-")] == []


def test_create_killed_at_any_time_keeps_config_json_whole(
    node8: Installation, bundle: Bundle
) -> None:
    """A create that is killed with its launcher leaves the old or the new config.json."""
    before = bundle.file.read_bytes()
    assert node8.edit(bundle).rc == 0
    after = bundle.file.read_bytes()
    environment = {**os.environ, **node8.on("/bin/true")}
    chance = random.Random(2)  # the same moments in every run
    for _ in range(60):
        bundle.file.write_bytes(before)
        with subprocess.Popen(
            [node8.runtime, "create", "--bundle", str(bundle.path), "gpuhook-test-killed"],
            env=environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            time.sleep(chance.uniform(0, 0.03))
            os.killpg(process.pid, signal.SIGKILL)
        assert bundle.file.read_bytes() in (before, after)


def no_driver(made: Installation) -> tuple[str, str]:
    """Empty the driver root."""
    shutil.rmtree(Path(made.node.driver_root) / "usr")
    return "GH12", made.node.driver_root


def no_nvml(made: Installation) -> tuple[str, str]:
    """Remove NVML from the driver root."""
    for path in Path(made.node.driver_root).rglob("libnvidia-ml.so*"):
        path.unlink()
    return "GH12", made.node.driver_root


def other_nvml(made: Installation) -> tuple[str, str]:
    """Let NVML report another driver version than that of the driver root."""
    profile = Path(made.node.nvml_profile)
    text = profile.read_text(encoding="utf-8")
    profile.write_text(text.replace("driver 580.95.05", "driver 550.1.2"), encoding="utf-8")
    return "GH12", "550.1.2"


def other_module(made: Installation) -> tuple[str, str]:
    """Load a kernel module of another driver version, so that NVML fails."""
    version = Path(made.node.host_root, "sys/module/nvidia/version")
    version.write_text("550.1.2\n", encoding="utf-8")
    with Path(made.node.nvml_profile).open("a", encoding="utf-8") as profile:
        profile.write("init 18\n")  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
    return "GH1203", "550.1.2"


def no_device_node(made: Installation) -> tuple[str, str]:
    """Remove the GPU's device node."""
    path = Path(made.node.dev_root, "dev/nvidia0")
    path.unlink()
    return "GH1210", str(path)


def other_device_node(made: Installation) -> tuple[str, str]:
    """Create the GPU's device node with another major number."""
    path = Path(made.node.dev_root, "dev/nvidia0")
    path.unlink()
    os.mknod(path, 0o020666, os.makedev(1, 3))
    return "GH1210", str(path)


SPOILED = [no_driver, no_nvml, other_nvml, other_module, no_device_node, other_device_node]


@pytest.mark.parametrize("spoil", SPOILED)
def test_generate_cdi_with_a_broken_driver_keeps_the_spec(
    spoil: Callable[[Installation], tuple[str, str]], node8: Installation, tmp_path: Path
) -> None:
    """generate-cdi fails on a node with a broken driver, and the old spec remains."""
    made = installation(tmp_path / "node", "t4", node8.bindir)
    before, around = made.spec.read_bytes(), sorted(os.listdir(made.specs))
    code, word = spoil(made)
    words = ["generate-cdi", *made.node.options, "--mode", "nvml", "--output-file", str(made.spec)]
    done = made.gpuhook(*words)
    assert done.rc == 1
    assert done.stdout == ""
    assert f"Error {code}" in done.stderr
    assert word in done.stderr
    assert "hint: " in done.stderr
    assert made.spec.read_bytes() == before
    assert sorted(os.listdir(made.specs)) == around


def test_generate_cdi_without_nvml_describes_the_same_gpus(
    node8: Installation, tmp_path: Path
) -> None:
    """Without NVML, generate-cdi describes the same devices, and prints a warning."""
    made = installation(tmp_path / "node", "t4", node8.bindir)
    before = yaml.safe_load(made.spec.read_text())
    code, word = no_nvml(made)
    done = made.gpuhook("generate-cdi", *made.node.options, "--output-file", str(made.spec))
    assert done.rc == 0, done.stderr
    assert f"warning: {code}" in done.stderr
    assert word in done.stderr
    now = yaml.safe_load(made.spec.read_text())
    assert now["devices"] == before["devices"]
    names = {Path(mount["hostPath"]).name for mount in now["containerEdits"]["mounts"]}
    assert "libcuda.so.580.95.05" in names


def test_generate_cdi_on_a_full_disk_keeps_the_spec(apart: Installation, tmp_path: Path) -> None:
    """generate-cdi on a full disk leaves the old spec, and no other file."""
    with small_file_system(tmp_path / "full") as place:
        spec = place / "nvidia.yaml"
        shutil.copy(apart.spec, spec)
        before = spec.read_bytes()
        fill(place)
        done = apart.gpuhook("generate-cdi", *apart.node.options, "--output-file", str(spec))
        assert done.rc == 1
        assert "GH1111" in done.stderr
        assert spec.read_bytes() == before
        assert set(os.listdir(place)) == {"nvidia.yaml", "filler"}
