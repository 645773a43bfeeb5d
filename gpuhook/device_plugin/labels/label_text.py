# SPDX-License-Identifier: Apache-2.0
"""What may stand in a label of a node: at most 63 characters, and a letter or digit at both ends.

Source: Kubernetes' documentation, "Labels and Selectors", syntax and character set.
"""

from __future__ import annotations

import string

MAX_LENGTH = 63  # of a value, and of a key behind its prefix
_INNER = frozenset(string.ascii_letters + string.digits + "-_.")
_AROUND = "-_."


def value(text: str, suffix: str = "", limit: int = MAX_LENGTH) -> str:
    """Return `text` as a label's value: its words joined by "-", and nothing that is not allowed.

    `suffix` stands at the end also where `text` must be cut to keep to `limit` characters. A text
    of which nothing can stay gives the suffix alone, without what it must not begin with.

    >>> value("NVIDIA RTX A6000 (Laptop)", "-SHARED")
    'NVIDIA-RTX-A6000-Laptop-SHARED'
    """
    ending = "".join(c for c in suffix if c in _INNER)[:limit]
    words = ("".join(c for c in word if c in _INNER) for word in text.split())
    body = "-".join(word for word in words if word).strip(_AROUND)
    body = body[: limit - len(ending)].rstrip(_AROUND)
    return (body + ending).strip(_AROUND)


def profile(name: str) -> str:
    """Return a MIG profile as it stands in resource names and labels.

    >>> profile("1g.10gb+me")
    '1g.10gb.me'
    """
    return value(name.replace("+", ".").replace(":", "."))
