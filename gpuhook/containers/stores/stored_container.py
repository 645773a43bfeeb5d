# SPDX-License-Identifier: Apache-2.0
"""A container as its engine stores it, running or not.

Names and images of a user's engine are that user's text: those that no engine accepts are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

# docker, podman, nerdctl and Compose accept these; ids are such names, too.
_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,254}")
_MAX_IMAGE = 512
_PROJECT, _SERVICE = "com.docker.compose.project", "com.docker.compose.service"


@dataclass(frozen=True)
class StoredContainer:
    """A container in the store of an engine; "" for what the engine has not stored.

    `project` and `service` are those of Compose. `is_running` is what the engine has last written.
    `user` is the user whose engine it is, 0 for root and the present user.
    """

    engine: str
    id: str
    name: str
    image: str = ""
    project: str = ""
    service: str = ""
    is_running: bool = False
    user: int = 0

    def is_named(self, text: str) -> bool:
        """Return whether `text` is the name or the beginning of the id."""
        return bool(text) and (text == self.name or self.id.startswith(text))

    def is_of_service(self, text: str) -> bool:
        """Return whether `text` is Compose's service, or project/service."""
        return bool(self.service) and text in (self.service, f"{self.project}/{self.service}")


def name(value: object) -> str:
    """Return a name, "" if no engine accepts it.

    >>> name("train-0"), name("a b"), name(7)
    ('train-0', '', '')
    """
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def image(value: object) -> str:
    """Return the name of an image, "" for another value."""
    is_name = isinstance(value, str) and value.isascii() and value.isprintable()
    return str(value) if is_name and len(str(value)) <= _MAX_IMAGE else ""


def labels(value: Any) -> tuple[str, str]:
    """Return the project and the service in the labels that Compose gives a container."""
    found = value if isinstance(value, dict) else {}
    return name(found.get(_PROJECT)), name(found.get(_SERVICE))
