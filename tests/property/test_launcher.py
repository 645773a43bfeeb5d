# SPDX-License-Identifier: Apache-2.0
"""The launcher starts a container without Python only if Python would start it unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import static_program
import yaml
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from gpuhook.entry import oci_command, runtime
from gpuhook.host.hot.settings import KEYS, Settings, from_document
from gpuhook.host.hot.settings_environment import VARIABLES, values
from gpuhook.host.hot.state import PROGRAM_DIRS
from gpuhook.vendors.hot.prefilter import MARKS
from tests.depth import depth

CHECKOUT = Path(__file__).parents[2]
LAUNCHER = CHECKOUT / "packaging/gpuhook-runtime.sh"
PACKAGED = (CHECKOUT / "gpuhook/schemas/config.yaml").read_text("utf-8")  # each is a comment
WORDS = (
    *(mark.decode().strip('"') for mark in MARKS),
    *("NVIDIA_VISIBLE_DEVICE", "cdi.k8s.io/x", "own.io/x", "OWN_GPU", "PATH=/bin", "a && b <c>"),
    *("\\u0041", "sed s/\\//x/", "\u00e9\u2028\x01", "CUDA_VERSION=12", "nvidia"),
)
TEXT = st.sampled_from(["PATH=/bin", "a && b <c>", "/proc"]) | st.sampled_from(WORDS) | st.text()
SPEC = st.fixed_dictionaries(
    {"process": st.fixed_dictionaries({"env": st.lists(TEXT, max_size=3)})},
    optional={
        "annotations": st.dictionaries(TEXT, TEXT, max_size=2),
        "mounts": st.lists(st.fixed_dictionaries({"destination": TEXT}), max_size=2),
    },
)
SETTINGS = st.sampled_from(
    [
        *(
            None,
            PACKAGED,
            "cdi: {onStale: refuse}",
            "# as usual\nrequest:\n  legacyImages: false\n",
        ),
        *("cdi:\n  annotationPrefixes: [own.io/]\n", "request: {swarmResources: [OWN_GPU]}"),
        *('{"cdi": {"annotationPrefixes": []}}', "runtime: {lowLevelRuntimes: [crun]}"),
        'request: {"swarm\\x52esources": [OWN_GPU]}',
        *('{"limits": {"hints": ["#"]}, "request": {"swarmResources": ["OWN_GPU"]}}',),
    ]
)
VARIABLE = st.sampled_from(
    [
        *({}, {}, {"GPUHOOK_CDI_ANNOTATION_PREFIXES": "own.io/"}),
        *({"GPUHOOK_REQUEST_SWARM_RESOURCES": "OWN_GPU"}, {"GPUHOOK_CDI_ON_STALE": "refuse"}),
        *({"GPUHOOK_RUNTIME_LOW_LEVEL_RUNTIMES": "crun"}, {"GPUHOOK_LOW_LEVEL_RUNTIME": "crun"}),
    ]
)
OPTION = st.sampled_from(
    [
        *(["--root", "/r"], ["--log=/l"], ["--systemd-cgroup"], ["--pid-file", "/p"], ["--"]),
        *(["create"], ["--bundle", "other"], ["--bundle=other"], ["-b", "other"], ["-bother"]),
        *(["--config", "other.json"], ["--config=other.json"], ["-fother.json"], ["run"], ["id"]),
        *(["-config=other.json"], ["--b", "other"], ["---bundle", "other"], ["--root", "create"]),
    ]
)
OPTIONS = st.just(["--log", "/l"]) | st.lists(OPTION, max_size=3).map(
    lambda found: [one for words in found for one in words]
)


class LaunchedNode:
    """Two runtimes that print their name, and an interpreter whose answer prints `asked`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("bin/runc", "bin/crun", "late/runc", "asked"):
            self._program(name, f"echo {name}")
        python = self._program("python", f"echo {path}/asked")
        (path / "other").mkdir()
        static_program.build(static_program.LAUNCH, str(path / "launch"))
        text = LAUNCHER.read_text("utf-8").replace("@PYTHON@", python)
        self.launcher = path / "launcher"
        self.launcher.write_text(text.replace("#!/bin/sh\n", f"#!{path}/launch\n", 1), "utf-8")
        self.launcher.chmod(0o755)

    def _program(self, name: str, text: str) -> str:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)
        return str(path)

    def write(self, spec: str, text: str | None, record: str) -> None:
        """Write config.json, settings and record; the other bundle requests a GPU."""
        (self.path / "config.json").write_text(spec, "utf-8")
        for name in ("other/config.json", "other.json"):
            (self.path / name).write_text('"NVIDIA_VISIBLE_DEVICES=0"', "utf-8")
        (self.path / "low-level-runtime").write_text(f"{self.path}/{record}\n", "utf-8")
        config = self.path / "config.yaml"
        config.unlink(missing_ok=True)
        if text is not None:
            config.write_text(text, "utf-8")

    def environment(self, more: dict[str, str], place: str) -> dict[str, str]:
        """Return the variables of a call."""
        own = {"GPUHOOK_STATE_DIR": self.path, "GPUHOOK_CONFIG": self.path / "config.yaml"}
        path = f"{self.path}/{place}:{self.path}/bin"
        return {**{name: str(value) for name, value in own.items()}, "PATH": path, **more}

    def starts(self, words: list[str], env: dict[str, str]) -> str:
        """Return what the launcher starts: a runtime, or what Python answers."""
        command = [str(self.launcher), *words]
        done = subprocess.run(
            command, env=env, cwd=self.path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def needs_python(
        self, words: list[str], env: dict[str, str], chosen: Settings, started: str
    ) -> bool:
        """Return whether Python would edit config.json, or start another runtime."""
        command = oci_command.parse(words)
        path = command.config or os.path.join(command.bundle, "config.json")
        raw = (self.path / path).read_bytes()
        is_edited = command.name in oci_command.EDITED
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", env)
            low_level = runtime.find_low_level(chosen.low_level_runtimes, str(self.launcher))
        return low_level != f"{self.path}/{started}" or (
            is_edited and runtime.may_ask(raw, runtime.own_marks(chosen))
        )


def chosen_settings(text: str | None, env: dict[str, str]) -> Settings:
    """Return the settings of a file and of variables."""
    chosen = from_document(yaml.safe_load(text or "") or {})
    for attribute, value in values(env).items():
        setattr(chosen, attribute, value)
    return chosen


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> LaunchedNode:
    return LaunchedNode(tmp_path_factory.mktemp("launched"))


PLAIN = {"process": {"env": ["PATH=/bin", "a && b <c>"]}}
OWN = {"process": {"env": ["OWN_GPU=0"]}}
ENGINES = ["--root", "/r", "--log", "/l", "--log-format", "json", "--systemd-cgroup"]


@settings(
    max_examples=depth(150, 1000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    spec=SPEC, is_ascii=st.booleans(), text=SETTINGS, more=VARIABLE,
    record=st.sampled_from(["bin/runc", "bin/runc", "bin/crun", "late/runc"]),
    place=st.sampled_from(["none", "none", "late"]), before=OPTIONS, after=OPTIONS,
)  # fmt: skip
@example(PLAIN, False, None, {}, "bin/runc", "none", ENGINES, ["--pid-file", "/p", "--", "id"])
@example(PLAIN, False, None, {}, "bin/runc", "none", [], ["-fother.json", "id"])
@example(PLAIN, False, None, {}, "bin/runc", "none", [], ["id", "--b", "other"])
@example(PLAIN, False, None, {}, "bin/runc", "none", ["run", "id", "id"], ["id"])
@example(OWN, False, 'request: {"swarm\\x52esources": [OWN_GPU]}', {}, "bin/runc", "none", [], [])
def test_start_without_python_is_pythons_decision(
    node: LaunchedNode, spec: dict[str, Any], is_ascii: bool, text: str | None,
    more: dict[str, str], record: str, place: str, before: list[str], after: list[str],
) -> None:  # fmt: skip
    """What the launcher starts without Python is what Python would start, with no edits."""
    raw = json.dumps(spec, ensure_ascii=is_ascii).replace("&", "\\u0026").replace("<", "\\u003c")
    words = [*before, "create", "--bundle", ".", *after]
    node.write(raw, text, record)
    env = node.environment(more, place)
    started = node.starts(words, env)
    event("Python" if started == "asked" else "no Python")
    if started != "asked":
        assert not node.needs_python(words, env, chosen_settings(text, more), started)


@pytest.mark.parametrize("command", ["create", "run"])
def test_usual_container_needs_no_python(command: str, node: LaunchedNode) -> None:
    """Engines' calls, a container without a word of a request, settings that add none."""
    for text in (None, PACKAGED, "cdi: {onStale: refuse}  # not refresh"):
        node.write(json.dumps(PLAIN).replace("&", "\\u0026"), text, "bin/runc")
        words = [*ENGINES, command, "--bundle", str(node.path), "--pid-file", "/p", "id"]
        assert node.starts(words, node.environment({}, "none")) == "bin/runc"
        env = node.environment({"GPUHOOK_LOW_LEVEL_RUNTIME": f"{node.path}/late/runc"}, "none")
        assert node.starts(words, env) == "late/runc"


def test_launcher_knows_each_word_and_setting(node: LaunchedNode) -> None:
    """A new word of requests, or a setting of words or runtimes, is in the launcher, too."""
    words = ["create", "--bundle", ".", "id"]
    chosen = Settings()
    source = Path(static_program.LAUNCH).read_text("utf-8")
    assert f'"{":".join(PROGRAM_DIRS)}";' in source
    assert f"runtimes[] = {{{json.dumps(chosen.low_level_runtimes)[1:-1]}, NULL}};" in source
    for word in (*(mark.decode() for mark in MARKS), *chosen.annotation_prefixes):
        node.write(f"[{word}]", None, "bin/runc")
        assert node.starts(words, node.environment({}, "none")) == "asked", word
    attributes = {"annotation_prefixes", "swarm_resources", "low_level_runtimes"}
    for (_, key), attribute in KEYS.items():
        node.write("{}", f"{key}: []", "bin/runc")
        started = node.starts(words, node.environment({}, "none"))
        assert (started == "asked") is (attribute in attributes), key
    for name, (attribute, _, _) in VARIABLES.items():
        node.write("{}", None, "bin/runc")
        started = node.starts(words, node.environment({name: "x"}, "none"))
        assert (started == "asked") is (attribute in attributes), name


BYTES = st.lists(
    st.sampled_from([word.encode() for word in WORDS]) | st.binary(max_size=9), max_size=9
).map(b"".join)
WORD = BYTES.map(lambda data: data.replace(b"\0", b"")) | st.sampled_from(
    [b"create", b"run", b"--bundle", b".", b"--", b"-v", b"x" * 5000]
)
# A call of Python, whole or damaged: the last one prints more than a path.
CALL = st.lists(
    st.sampled_from([b'"/bin/false" ', b"'a b' ", b"x ", b'"$0" "$@")\n', b'"', b"'", b" "])
    | st.just(b"'/bin/sh' -c 'while echo; do :; done | head -c 9000; echo /x' "),
    max_size=20,
).map(b"".join)


@pytest.mark.thorough
@settings(
    max_examples=depth(1, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    spec=BYTES, text=BYTES, call=CALL, record=st.none() | BYTES | st.just(b"x" * 9000),
    words=st.lists(WORD, max_size=4), path=WORD, low=st.none() | st.just(b"") | WORD,
    is_create=st.booleans(),
)  # fmt: skip
def test_no_input_makes_the_program_read_or_write_other_memory(
    node: LaunchedNode, spec: bytes, text: bytes, call: bytes, record: bytes | None,
    words: list[bytes], path: bytes, low: bytes | None, is_create: bool,
) -> None:  # fmt: skip
    """A program with sanitizers ends with the status of what it starts, whatever it reads.

    A runtime of None is the one of the node.
    """
    program, script, runc = node.path / "sanitized", node.path / "script", node.path / "bin/runc"
    if not program.exists():
        options = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(["gcc", *options, "-o", program, static_program.LAUNCH], check=True)
    script.write_bytes(b"exit 0\nfound=$(" + call)
    (node.path / "config.json").write_bytes(spec)
    (node.path / "config.yaml").write_bytes(text)
    (node.path / "low-level-runtime").write_bytes(bytes(runc) if record is None else record)
    env = {key.encode(): value.encode() for key, value in node.environment({}, "none").items()}
    env[b"PATH"] = path + b":" + bytes(runc.parent)
    env[b"GPUHOOK_LOW_LEVEL_RUNTIME"] = bytes(runc) if low is None else low
    words = [b"create", b"--bundle", b".", *words] if is_create else words
    done = subprocess.run(
        [program, script, *words], env=env, cwd=node.path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
