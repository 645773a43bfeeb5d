# SPDX-License-Identifier: Apache-2.0
"""Valid values of node labels: at most 63 characters, a letter or digit at both ends.

Source: Kubernetes' documentation, "Labels and Selectors", syntax and character set.
"""

from __future__ import annotations

import string

MAX_LENGTH = 63  # of a value, and of a key without its prefix
VALID = frozenset(string.ascii_letters + string.digits + "-_.")
_AROUND = "-_."


def value(text: str, suffix: str = "", limit: int = MAX_LENGTH) -> str:
    """Return `text` as a label's value: its words joined by "-", without invalid characters.

    `text` is cut so that the value with `suffix` has at most `limit` characters. Without any valid
    character the value is the suffix, less the characters that a value must not start with.

    >>> value("NVIDIA RTX A6000 (Laptop)", "-SHARED")
    'NVIDIA-RTX-A6000-Laptop-SHARED'
    """
    ending = "".join(c for c in suffix if c in VALID)[:limit]
    words = ("".join(c for c in word if c in VALID) for word in text.split())
    body = "-".join(word for word in words if word).strip(_AROUND)
    body = body[: limit - len(ending)].rstrip(_AROUND)
    return (body + ending).strip(_AROUND)


def profile(name: str) -> str:
    """Return a MIG profile in the form of resource names and labels.

    >>> profile("1g.10gb+me")
    '1g.10gb.me'
    """
    return value(name.replace("+", ".").replace(":", "."))


def accelerator(model: str, vendor: str) -> str:
    """Return the value that administrators usually give to the label `accelerator`.

    >>> accelerator("Tesla T4", "nvidia"), accelerator("NVIDIA L4", "nvidia")
    ('nvidia-tesla-t4', 'nvidia-l4')
    """
    text = model if model.lower().startswith(vendor) else f"{vendor} {model}"
    return value(text).lower()
