# SPDX-License-Identifier: Apache-2.0
"""How secrets are called, and which values of such a name tell nothing."""

from __future__ import annotations

import re

REMOVED = "REMOVED"
# Variables of containers and daemons whose values tell of GPUs; those of others are nobody's.
_HARMLESS = re.compile(
    r"NVIDIA_\w+|CUDA_\w+|GPUHOOK_\w+|NCCL_\w+|__NV\w*|__GLX_\w+|PATH|LD_LIBRARY_PATH|LD_PRELOAD"
    r"|HOME|HOSTNAME|LANG|LC_ALL|TERM|NODE_NAME|DEVICE_\w+_STRATEGY|MIG_STRATEGY|CONFIG_FILE"
    r"|PASS_DEVICE_SPECS|FAIL_ON_INIT_ERROR|MPS_ROOT|KUBERNETES_SERVICE_\w+"
)
# Every pattern takes a time that grows with the length of its text, whatever is in it: a word is
# tried where it begins, and spaces are those of one line.
START = r"(?<![\w.-])"
_PART = (
    r"(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|client[_-]key[_-]data|[_-]authority[_-]data|certificate[_-]data"
    r"|(?:session|encryption|signing|master|shared|account|storage|hmac|license)[_-]?key"
    r"|dockerconfigjson|dockercfg|bearer)"
)
_END = r"(?:[_.-]pass|pwd|psk|authorization)(?![\w.-])"
_WHOLE = r"(?:pass|cookie|-{0,2}auth)(?![\w.-])"
WORD = rf"(?:[\w.-]{{0,128}}{_PART}[\w.-]{{0,64}}|[\w.-]{{0,128}}{_END}|{_WHOLE})"
# What every such word has in it: texts and lines without it need no closer look.
MARK = re.compile(rf"{_PART}|{_END}|{START}{_WHOLE}", re.IGNORECASE)
_KEY = re.compile(WORD, re.IGNORECASE)
# A word that names a password itself: a number may be one.
_PASSWORD = re.compile(r"passw|passphrase|pass\b|pwd|secret", re.IGNORECASE)
_NOTHING = re.compile(r"true|false|null|none|yes|no|on|off|~|", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d{1,3})?")
_DURATION = re.compile(r"(?:\d{1,5}(?:\.\d{1,3})?(?:ns|us|ms|s|m|h))+")
# Base64 may begin with a slash, too: a path is one of those that systems have.
_PATH = re.compile(
    r"/(?:(?:app|bin|boot|certs?|config|data|dev|etc|home|host|lib|lib32|lib64|media|mnt|opt|proc"
    r"|root|run|sbin|secrets?|snap|srv|sys|tmp|usr|var)(?:/[\w.@~:+-]*)*)?"
)


def is_secrets(name: str) -> bool:
    """Return whether a key or an option is called as secrets are."""
    return _KEY.fullmatch(name) is not None


def is_harmless(name: str) -> bool:
    """Return whether the value of a variable may be seen."""
    return _HARMLESS.fullmatch(name) is not None and not is_secrets(name)


def is_path(text: str) -> bool:
    """Return whether text is the path of a file where systems have theirs."""
    return _PATH.fullmatch(text) is not None


def is_plain(name: str, value: str) -> bool:
    """Return whether a value of such a name is no secret: nothing, a path, how long, how many."""
    value = value.strip().rstrip(",;").strip("\"'")
    if REMOVED in value or _NOTHING.fullmatch(value) or is_path(value):
        return True
    if _PASSWORD.search(name):
        return value == "0"
    return bool(_NUMBER.fullmatch(value) or _DURATION.fullmatch(value))
