# SPDX-License-Identifier: Apache-2.0
"""Faults GH20xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH2000": (
        (
            "The engine has a runtime of that name already, and its program is another's, mostly "
            "NVIDIA's. It is not replaced unasked: containers that use it would change hands."
        ),
        (
            "Register gpuhook beside it under another name, try that, and take the name over "
            "when you are content. `gpuhook configure undo` brings the old one back, byte for byte."
        ),
        """
$ gpuhook configure docker --runtime-name gpuhook
$ docker run --rm --runtime gpuhook -e NVIDIA_VISIBLE_DEVICES=all debian nvidia-smi -L
$ gpuhook configure docker --take-over
""",
    ),
}
