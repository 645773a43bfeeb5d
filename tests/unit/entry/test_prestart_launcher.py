# SPDX-License-Identifier: Apache-2.0
"""gpuhook-prestart: a container without a request ends in the shell, any other in gpuhook-hook."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
PACKAGED = (CHECKOUT / "gpuhook/schemas/config.yaml").read_text("utf-8")  # each is a comment
VARIABLES = b'{"process":{"env":[%s]}}'


def calls_hook(place: Path, config: bytes, settings: str) -> bool:
    """Return whether gpuhook-prestart calls gpuhook-hook for this config.json and settings."""
    text = (CHECKOUT / "packaging/gpuhook-prestart.sh").read_text("utf-8")
    script, hook = place / "gpuhook-prestart", place / "gpuhook-hook"
    script.write_text(text.replace("@BIN@", str(place)), "utf-8")
    hook.write_text('#!/bin/sh\necho "$@"\ncat\n', "utf-8")
    hook.chmod(0o755)
    (place / "config.json").write_bytes(config)
    (place / "config.yaml").write_text(settings, "utf-8")
    env = {"GPUHOOK_CONFIG": f"{place}/config.yaml", "LC_ALL": "C.UTF-8", "PATH": "/nowhere"}
    state = f'{{"id":"x","bundle":"{place}"}}'
    done = subprocess.run(
        ["/bin/sh", str(script), "prestart"], input=state.encode(), env=env, capture_output=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == b""
    assert done.stdout in (b"", f"prestart\n{state}".encode())
    return done.stdout != b""


@pytest.mark.parametrize(
    ("env", "settings", "is_called"),
    [
        (b'"PATH=/bin"', PACKAGED, False),
        (b'"NVIDIA_VISIBLE_DEVICES=void"', PACKAGED, False),
        (b'"NVIDIA_VISIBLE_DEVICES=0"', PACKAGED, True),
        (b'"\xff","NVIDIA_VISIBLE_DEVICES=0"', "", True),
        (b'"CUDA_VERSION=12"', "", True),
        (b'"CUDA_VERSION=12","NVIDIA_VISIBLE_DEVICES="', "", False),
        (b'"CUDA_VERSION=12","NVIDIA_VISIBLE_DEVICES=all"', "", True),
        (b'"NVIDIA_\\u0056ISIBLE_DEVICES=all"', PACKAGED, True),
        (b'"A=\\\\u00\\u0026\\u003c\\u003E\\u2028\\u001b"', PACKAGED, False),
        (b'"A","gpuhook\\/memory"', PACKAGED, True),
        (b'"PATH=/bin"', "request:\n  swarmResources: [X]\n", True),
        (b'"PATH=/bin"', '{"a": "#", "cdi": {"annotationPrefixes": []}}', True),
    ],
)
def test_container_without_a_request_ends_in_the_shell(
    env: bytes, settings: str, is_called: bool, tmp_path: Path
) -> None:
    """Comments of the settings name the words of requests, too."""
    assert calls_hook(tmp_path, VARIABLES % env, settings) is is_called
