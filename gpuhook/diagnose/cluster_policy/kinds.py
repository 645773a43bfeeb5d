# SPDX-License-Identifier: Apache-2.0
"""What values of the chart can be, as far as a policy may say otherwise."""

from __future__ import annotations

import re
from typing import Any

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

# A repository or an image's name, and a tag or a digest, as values.schema.json has them.
_IMAGE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:]*")
_VERSION = re.compile(r"sha256:[0-9a-f]{64}|[A-Za-z0-9_][-A-Za-z0-9._]{0,127}")

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def boolean(value: Any) -> bool:
    """Return whether it is true or false."""
    return isinstance(value, bool)


def text(value: Any) -> bool:
    """Return whether it is text."""
    return isinstance(value, str)


def repository(value: Any) -> bool:
    """Return whether it is a registry's host with a path, or a part of that."""
    return isinstance(value, str) and _IMAGE.fullmatch(value) is not None


def image(value: Any) -> bool:
    """Return whether it is an image's name without a version."""
    return repository(value) and ":" not in value


def version(value: Any) -> bool:
    """Return whether it is an image's tag or digest."""
    return isinstance(value, str) and _VERSION.fullmatch(value) is not None


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
