# SPDX-License-Identifier: Apache-2.0
"""What values of the chart can be, as far as a policy may say otherwise."""

from __future__ import annotations

import re
from typing import Any

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def boolean(value: Any) -> bool:
    """Return whether it is true or false."""
    return isinstance(value, bool)


def text(value: Any) -> bool:
    """Return whether it is text."""
    return isinstance(value, str)


def path(value: Any) -> bool:
    """Return whether it is an absolute path."""
    return isinstance(value, str) and value.startswith("/") and "\n" not in value


def name(value: Any) -> bool:
    """Return whether it can name an object, or a runtime."""
    return isinstance(value, str) and _LABEL.fullmatch(value) is not None


def texts(value: Any) -> bool:
    """Return whether it is a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def labels(value: Any) -> bool:
    """Return whether it is texts by their names."""
    return isinstance(value, dict) and texts([*value, *value.values()])


def configurations(value: Any) -> bool:
    """Return whether it can be the data of a ConfigMap."""
    return labels(value) and all(_KEY.fullmatch(key) for key in value)


def mapping(value: Any) -> bool:
    """Return whether it is an object."""
    return isinstance(value, dict) and texts([*value])


def objects(value: Any) -> bool:
    """Return whether it is a list of objects."""
    return isinstance(value, list) and all(mapping(one) for one in value)


def migs(value: Any) -> bool:
    """Return whether it is a MIG strategy."""
    return value in ("none", "single", "mixed")


def pulls(value: Any) -> bool:
    """Return whether it says when an image is pulled."""
    return value in ("Always", "IfNotPresent", "Never")


def engine(value: Any) -> bool:
    """Return whether it is an engine that is configured."""
    return value in ("containerd", "crio", "docker")
