# SPDX-License-Identifier: Apache-2.0
"""Settings from the environment: GPUHOOK_<SECTION>_<KEY>, which override the file.

Loaded only if a variable's name has such a prefix. An empty variable is ignored. Commas separate
the values of a list; colons, too, if they are directories.
"""

from __future__ import annotations

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BOOLEAN, LIST, DIRECTORIES, DIRECTORY, KIND = "boolean", "list", "directories", "directory", "kind"
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx")
_HINTS = ("tensorflow", "pytorch", "jax", "cupy", "paddle")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAMING = _LETTERS + "0123456789_.-"

# Variable -> attribute of Settings, its form, and the only values that it may have.
VARIABLES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "GPUHOOK_CDI_ANNOTATION_PREFIXES": ("annotation_prefixes", LIST, ()),
    "GPUHOOK_CDI_DEFAULT_KIND": ("default_kind", KIND, ()),
    "GPUHOOK_CDI_ON_STALE": ("on_stale", "", ("refresh", "refuse")),
    "GPUHOOK_CDI_SPEC_DIRS": ("spec_dirs", DIRECTORIES, ()),
    "GPUHOOK_DRIVER_DEV_ROOT": ("dev_root", DIRECTORY, ()),
    "GPUHOOK_DRIVER_ROOT": ("driver_root", DIRECTORY, ()),
    "GPUHOOK_LIMITS_GUARANTEE": ("limits_guarantee", "", ("auto", "always", "never")),
    "GPUHOOK_LIMITS_HINTS": ("limits_hints", LIST, _HINTS),
    "GPUHOOK_LIMITS_ON_FAILURE": ("limits_on_failure", "", ("auto", "refuse", "start")),
    "GPUHOOK_NRI_DEVICES": ("nri_devices", LIST, ()),
    "GPUHOOK_NRI_MANAGEMENT_NAMESPACES": ("nri_management_namespaces", LIST, ()),
    "GPUHOOK_NRI_NAMESPACES": ("nri_namespaces", LIST, ()),
    "GPUHOOK_NRI_RUNTIME_CLASSES": ("nri_runtime_classes", LIST, ()),
    "GPUHOOK_REQUEST_ACCEPT_ANNOTATIONS": (
        "accept_annotations",
        "",
        ("auto", "kubelet", "any", "none"),
    ),
    "GPUHOOK_REQUEST_ACCEPT_ENV_WHEN_UNPRIVILEGED": ("accept_env_when_unprivileged", BOOLEAN, ()),
    "GPUHOOK_REQUEST_ACCEPT_VOLUME_MOUNTS": ("accept_volume_mounts", BOOLEAN, ()),
    "GPUHOOK_REQUEST_DEFAULT_DRIVER_CAPABILITIES": (
        "default_driver_capabilities",
        LIST,
        (*_CAPABILITIES, "all"),
    ),
    "GPUHOOK_REQUEST_DISABLE_REQUIREMENTS": ("disable_requirements", BOOLEAN, ()),
    "GPUHOOK_REQUEST_DRIVER_CAPABILITIES": ("driver_capabilities", LIST, _CAPABILITIES),
    "GPUHOOK_REQUEST_EXCLUSIVE_DEVICES": ("exclusive_devices", LIST, ()),
    "GPUHOOK_REQUEST_IGNORE_IMEX_CHANNELS": ("ignore_imex_channels", BOOLEAN, ()),
    "GPUHOOK_REQUEST_LEGACY_IMAGES": ("legacy_images", BOOLEAN, ()),
    "GPUHOOK_REQUEST_ON_MISSING_DRIVER": ("on_missing_driver", "", ("start", "refuse")),
    "GPUHOOK_REQUEST_ON_REFUSAL": ("on_refusal", "", ("ignore", "fail")),
    "GPUHOOK_REQUEST_ON_UNKNOWN_CAPABILITY": ("on_unknown_capability", "", ("refuse", "ignore")),
    "GPUHOOK_REQUEST_SWARM_RESOURCES": ("swarm_resources", LIST, ()),
    "GPUHOOK_RUNTIME_LOW_LEVEL_RUNTIMES": ("low_level_runtimes", LIST, ()),
}


def values(environment: Mapping[str, str]) -> dict[str, object]:
    """Return attribute -> value of the settings in an environment; raises GH1533."""
    found: dict[str, object] = {}
    for variable in set(VARIABLES).intersection(environment):
        text = environment[variable].strip()
        if text:
            attribute, form, words = VARIABLES[variable]
            found[attribute] = _value(variable, text, form, words)
    return found


def _value(variable: str, text: str, form: str, words: tuple[str, ...]) -> object:
    if form == BOOLEAN:
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise _unfit(variable, text, "it must be true or false")
    if form in (LIST, DIRECTORIES):
        return _list(variable, text, form, words)
    if form == DIRECTORY and not text.startswith("/"):
        raise _unfit(variable, text, "it must be an absolute path")
    if form == KIND and not _is_kind(text):
        raise _unfit(variable, text, "it must be VENDOR/CLASS, such as nvidia.com/gpu")
    if words and text not in words:
        raise _unfit(variable, text, f"it must be {_either(words)}")
    return text


def _list(variable: str, text: str, form: str, words: tuple[str, ...]) -> list[str]:
    if form == DIRECTORIES:
        text = text.replace(":", ",")
    found = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise _unfit(variable, text, "it is empty")
    for word in found:
        if words and word not in words:
            raise _unfit(variable, text, f"{word} is not one of {', '.join(words)}")
        if form == DIRECTORIES and not word.startswith("/"):
            raise _unfit(variable, text, f"{word} is not an absolute path")
        if variable == "GPUHOOK_REQUEST_SWARM_RESOURCES" and not _is_variable(word):
            raise _unfit(variable, text, f"{word} is not the name of a variable")
        if variable == "GPUHOOK_NRI_DEVICES" and not (_is_kind(word) or _is_device(word, ())):
            raise _unfit(variable, text, f"{word} is neither a CDI kind nor a CDI name")
        if variable == "GPUHOOK_REQUEST_EXCLUSIVE_DEVICES" and not _is_device(word):
            raise _unfit(variable, text, f"{word} is neither a CDI name nor all")
    return found


def _is_kind(text: str) -> bool:
    """Return whether the schema's pattern of a kind matches: no `re` on the hot path."""
    vendor, _, name = text.partition("/")
    return all(
        bool(part) and part[0] in _LETTERS and all(letter in _NAMING for letter in part)
        for part in (vendor, name)
    )


def _is_device(text: str, words: tuple[str, ...] = ("all",)) -> bool:
    kind, _, name = text.partition("=")
    return text in words or (_is_kind(kind) and name.split() == [name] and "=" not in name)


def _is_variable(text: str) -> bool:
    return text[0] in _LETTERS + "_" and all(letter in _NAMING for letter in text)


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _unfit(variable: str, text: str, reason: str) -> Exception:
    return fault("GH1533", variable=variable, value=text, reason=reason)
