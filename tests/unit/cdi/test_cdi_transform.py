# SPDX-License-Identifier: Apache-2.0
"""Moving specs to another root: the paths that change, those that do not, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi.transform import CONTAINER, HOST, Move, TransformOptions, moved
from gpuhook.cli import main

TOOLKIT = "nvidia-cdi-hook"
OPTIONS = TransformOptions(hook_args.HOST_OPTIONS, hook_args.PATH_BEHIND, hook_args.PATH_BEFORE)


def _spec() -> Any:
    """Return a spec as NVIDIA's toolkit writes it in a driver container, with gpuhook's hook."""
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "mounts": [{"hostPath": "/r/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/x"}],
            "hooks": [
                {
                    "hookName": "createContainer",
                    "path": "/r/usr/bin/nvidia-cdi-hook",
                    "args": [TOOLKIT, "create-symlinks", "--link", "x::/usr/lib/libcuda.so"],
                },
                {
                    "hookName": "createContainer",
                    "path": "/r/usr/bin/gpuhook-hook",
                    "args": [
                        "gpuhook-hook", "apply",
                        "--library", "/usr/lib/x=libcuda.so.1",
                        "--link", "../x::/usr/lib/libcuda.so",
                        "--libcuda", "/r/usr/lib/libcuda.so.1",
                        "--host-root", "/r",
                    ],
                },
                {"hookName": "prestart", "path": "/r/bin/a", "args": ["a", "/r/data"]},
                {"hookName": "startContainer", "path": "/usr/bin/b", "args": ["b", "/usr/lib"]},
            ],
        },
        "devices": [
            {
                "name": "0",
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/r/dev/nvidia0"}]
                },
            }
        ],
    }  # fmt: skip


def _moved(source: str, target: str, relative_to: str) -> Any:
    return moved(_spec(), (Move(source, target),), relative_to, options=OPTIONS)


def test_paths_of_the_host() -> None:
    """Nodes, mounted files, programs of the host and their arguments move, and no other path."""
    found = _moved("/r", "/", HOST)
    expected = _spec()
    expected["devices"][0]["containerEdits"]["deviceNodes"] = [{"path": "/dev/nvidia0"}]
    edits = expected["containerEdits"]
    edits["mounts"][0]["hostPath"] = "/usr/lib/libcuda.so.1"
    toolkit, ours, prestart, _ = edits["hooks"]
    toolkit["path"], ours["path"], prestart["path"] = (
        "/usr/bin/nvidia-cdi-hook", "/usr/bin/gpuhook-hook", "/bin/a",
    )  # fmt: skip
    prestart["args"] = ["a", "/data"]
    ours["args"][-3:] = ["/usr/lib/libcuda.so.1", "--host-root", "/"]
    assert found == expected


def test_paths_in_the_container() -> None:
    """Container paths, programs of the container, and arguments of hooks inside move."""
    found = _moved("/usr", "/opt", CONTAINER)
    expected = _spec()
    edits = expected["containerEdits"]
    edits["mounts"][0]["containerPath"] = "/opt/lib/x"
    toolkit, ours, _, start = edits["hooks"]
    toolkit["args"][-1] = "x::/opt/lib/libcuda.so"
    ours["args"][3] = "/opt/lib/x=libcuda.so.1"
    ours["args"][5] = "../x::/opt/lib/libcuda.so"
    start["path"], start["args"] = "/opt/bin/b", ["b", "/opt/lib"]
    assert found == expected


def _apply(*words: str) -> Any:
    """Return a spec with gpuhook's hook and these arguments."""
    spec = _spec()
    hook = spec["containerEdits"]["hooks"][1]
    hook["args"] = ["gpuhook-hook", "apply", *words]
    spec["containerEdits"]["hooks"] = [hook]
    return spec


@pytest.mark.parametrize(
    ("option", "before", "after"),
    [
        ("--library", "/usr/lib/x=libcuda.so.1", "/opt/lib/x=libcuda.so.1"),
        ("--library", "/usr/a=b/x=libx.so", "/opt/a=b/x=libx.so"),
        ("--needs", "compute,video=/usr/lib/x", "compute,video=/opt/lib/x"),
        ("--needs", "compute=/usr/a=b", "compute=/opt/a=b"),
        ("--chmod", "0755:/usr/share/dri", "0755:/opt/share/dri"),
        ("--link", "/usr/lib/x::/usr/lib/y", "/opt/lib/x::/opt/lib/y"),
        ("--cuda-compat", "/usr/local/cuda/compat", "/opt/local/cuda/compat"),
        ("--gpus", "0-7=9.0,nvidia", "0-7=9.0,nvidia"),
        ("--libcuda", "/usr/lib/x", "/usr/lib/x"),
        ("--ldconfig", "/usr/sbin/ldconfig", "/usr/sbin/ldconfig"),
    ],
)
def test_hook_arguments_in_the_container(option: str, before: str, after: str) -> None:
    """The path in each value moves, and the hook still reads the value."""
    move = (Move("/usr", "/opt"),)
    for words, expected in (
        ([option, before], [option, after]),
        ([f"{option}={before}"], [f"{option}={after}"]),
    ):
        found = moved(_apply(*words), move, CONTAINER, options=OPTIONS)
        (hook,) = found["containerEdits"]["hooks"]
        assert hook["args"][2:] == expected
    assert hook_args.parse([option, after]).arguments()[:2] == [option, after]


def test_hook_arguments_on_the_host() -> None:
    """The paths of the host's files move, such as ldconfig; those of the container do not."""
    words = [
        "--ldconfig", "/r/sbin/ldconfig", "--host-root", "/r", "--libcuda", "/r/lib/libcuda.so.1",
        "--needs", "compute=/r/x", "--chmod", "0755:/r/dri", "--library", "/r/x=libx.so",
    ]  # fmt: skip
    found = moved(_apply(*words), (Move("/r", "/"),), HOST, options=OPTIONS)
    (hook,) = found["containerEdits"]["hooks"]
    assert hook["args"][2:8] == [
        "--ldconfig", "/sbin/ldconfig", "--host-root", "/", "--libcuda", "/lib/libcuda.so.1",
    ]  # fmt: skip
    assert hook["args"][8:] == words[6:]


def test_moved_container_path_keeps_the_host_path() -> None:
    """A node without hostPath gets one if its path in the container changes."""
    spec = _spec()
    spec["devices"][0]["containerEdits"]["deviceNodes"] = [{"path": "/dev/nvidia0"}]
    found = moved(spec, (Move("/dev", "/d"),), CONTAINER, options=OPTIONS)
    nodes = found["devices"][0]["containerEdits"]["deviceNodes"]
    assert nodes == [{"path": "/d/nvidia0", "hostPath": "/dev/nvidia0"}]


@pytest.mark.parametrize("roots", [("/r", "/r"), ("/rr", "/x"), ("/r/usr/li", "/x"), ("/", "/")])
def test_equal_roots_change_nothing(roots: tuple[str, str]) -> None:
    """Nor does a root that ends in the middle of a name."""
    assert _moved(*roots, HOST) == _spec()
    assert _moved(*roots, CONTAINER) == _spec()


_NAMES = st.lists(st.sampled_from(["a", "b", "ab", "lib"]), max_size=4)


@given(_NAMES, _NAMES, _NAMES)
def test_moving_back_restores_the_spec(one: list[str], other: list[str], rest: list[str]) -> None:
    """A path below the old root is below the new one, and a move back undoes it."""
    source, target = "/" + "/".join(one), "/" + "/".join(other)
    path = "/" + "/".join([*one, *rest])
    there = Move(source, target)
    assert there.covers(path)
    now = there.path(path)
    assert now == "/" + "/".join([*other, *rest])
    assert Move(target, source).path(now) == path


def gpuhook(*arguments: str, text: str | None = None) -> Result:
    words = ["cdi", "transform", *arguments]
    return CliRunner().invoke(main, words, input=text, prog_name="gpuhook")


def test_from_input_to_output(tmp_path: Path) -> None:
    """Standard input to standard output, a file to itself, YAML to JSON."""
    text = json.dumps(_spec())
    done = gpuhook("root", "--from", "/r", "--to", "/", text=text)
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout) == _moved("/r", "/", HOST)
    path = tmp_path / "nvidia.yaml"
    path.write_text(done.stdout)
    place = ("--input", str(path), "--output-file", str(path))
    done = gpuhook("root", "--from", "/usr", "--to", "/o", *place, "--relative-to", "container")
    assert "wrote" in done.stderr
    assert "/o/lib/x" in path.read_text()
    done = gpuhook("root", "--from", "/", "--to", "/", "--input", str(path), "--format", "json")
    assert json.loads(done.stdout) == yaml.safe_load(path.read_text())


def test_driver_root_and_dev_root_move_separately() -> None:
    """Paths below the dev root move to a root other than that of the driver's files."""
    roots = ("--driver-root", "/r", "--target-driver-root", "/run/driver", "--target-dev-root", "/")
    found = yaml.safe_load(gpuhook("driver", *roots, text=json.dumps(_spec())).stdout)
    assert found["devices"][0]["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidia0"}]
    assert found["containerEdits"]["mounts"][0]["hostPath"] == "/run/driver/usr/lib/libcuda.so.1"
    roots = ("--driver-root", "/", "--target-driver-root", "/host", "--target-dev-root", "/")
    spec = _spec()
    spec["devices"][0]["containerEdits"]["deviceNodes"] = [{"path": "/dev/nvidia0"}]
    found = yaml.safe_load(gpuhook("driver", *roots, text=json.dumps(spec)).stdout)
    assert found["devices"][0]["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidia0"}]
    assert found["containerEdits"]["mounts"][0]["hostPath"] == "/host/r/usr/lib/libcuda.so.1"


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (("root", "--from", "r", "--to", "/"), "", "'r' is not an absolute path"),
        (("root", "--from", "/r"), "", "Missing option '--to'"),
        (("root", "--from", "/r", "--to", "/"), "{", "GH1109: standard input: line"),
        (("root", "--from", "/r", "--to", "/"), "", "GH1106: standard input"),
        (("root", "--from", "/r", "--to", "/"), "[]", "GH1106: standard input"),
        (("root", "--from", "/r", "--to", "/", "--input", "/no/x.yaml"), "", "GH1110: /no/x.yaml"),
        (
            ("root", "--from", "/r", "--to", "/", "--output-file", "x.yml"),
            "{}",
            "GH1514: --output-file x.yml",
        ),
        (
            ("root", "--from", "/", "--to", "/", "--output-file", "x.json", "--format", "yaml"),
            "{}",
            "GH1514: --output-file x.json",
        ),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], text: str, said: str) -> None:
    """The fault names the place, and no file is written."""
    done = gpuhook(*arguments, text=text)
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert done.stdout == ""
