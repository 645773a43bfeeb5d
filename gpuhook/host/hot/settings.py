# SPDX-License-Identifier: Apache-2.0
"""The node's settings: /etc/gpuhook/config.yaml, read through its compiled form.

This module never parses YAML: `gpuhook config compile` checks the file against the schema and
writes JSON below the state directory, once per version of the file. Without a file, the defaults
apply. Environment variables override both: see settings_environment.py.
"""

from __future__ import annotations

import os

from gpuhook import __version__
from gpuhook.errors import fault
from gpuhook.host.hot import fastjson, files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_PATH = "/etc/gpuhook/config.yaml"
PATH_ENV = "GPUHOOK_CONFIG"
START, REFUSE, AUTO = "start", "refuse", "auto"
ALWAYS, NEVER = "always", "never"
IGNORE, FAIL = "ignore", "fail"
REFRESH = "refresh"
KUBELET, ANY, NONE = "kubelet", "any", "none"
_MAX_SIZE = 1 << 20
# Prefixes of the variables of each section; GPUHOOK_CONFIG and others are not settings.
_SECTIONS = ("CDI", "DRIVER", "LIMITS", "NRI", "REQUEST", "RUNTIME")
_VARIABLES = tuple(f"GPUHOOK_{name}_" for name in _SECTIONS)


class Settings:
    """The settings that the hot path needs; the defaults are those of a node without a file."""

    def __init__(self) -> None:
        self.accept_annotations = AUTO  # by the creator: request/annotation_origin.py
        self.accept_env_when_unprivileged = True
        self.accept_volume_mounts = False
        self.annotation_prefixes = ["cdi.k8s.io/"]
        self.default_driver_capabilities = ["compute", "utility"]  # of a container without any
        self.default_kind = ""  # the vendor's own
        self.dev_root = ""  # the driver root if it has a /dev/nvidiactl, else /
        self.disable_requirements = False
        self.driver_capabilities: list[str] = []  # the allowed ones; [] allows all of them
        self.driver_root = ""  # see vendors/nvidia/driver/driver_locations.py
        self.exclusive_devices: list[str] = []  # `all`, or qualified CDI names
        self.ignore_imex_channels = False
        self.legacy_images = True
        self.limits_guarantee = AUTO  # unless it would outlive the container: memory_backend.py
        self.limits_hints: list[str] = []  # names of frameworks: framework_hints.py
        self.limits_on_failure = AUTO  # refuse if the pod itself requests the limit
        self.low_level_runtimes = ["runc", "crun"]
        self.nri_devices: list[str] = []  # kinds or names; [] allows the GPUs of all vendors
        self.nri_management_namespaces: list[str] = []
        self.nri_namespaces: list[str] = []  # "*" is any
        self.nri_runtime_classes: list[str] = []
        self.on_missing_driver = START
        self.on_refusal = IGNORE
        self.on_stale = REFRESH
        self.on_unknown_capability = REFUSE
        self.spec_dirs = ["/etc/cdi", "/var/run/cdi"]
        self.swarm_resources: list[str] = []  # variables that replace the devices' variable


# (section, key of the file) -> attribute
KEYS = {
    ("cdi", "annotationPrefixes"): "annotation_prefixes",
    ("cdi", "defaultKind"): "default_kind",
    ("cdi", "onStale"): "on_stale",
    ("cdi", "specDirs"): "spec_dirs",
    ("driver", "devRoot"): "dev_root",
    ("driver", "root"): "driver_root",
    ("limits", "guarantee"): "limits_guarantee",
    ("limits", "hints"): "limits_hints",
    ("limits", "onFailure"): "limits_on_failure",
    ("nri", "devices"): "nri_devices",
    ("nri", "managementNamespaces"): "nri_management_namespaces",
    ("nri", "namespaces"): "nri_namespaces",
    ("nri", "runtimeClasses"): "nri_runtime_classes",
    ("request", "acceptAnnotations"): "accept_annotations",
    ("request", "acceptEnvWhenUnprivileged"): "accept_env_when_unprivileged",
    ("request", "acceptVolumeMounts"): "accept_volume_mounts",
    ("request", "defaultDriverCapabilities"): "default_driver_capabilities",
    ("request", "disableRequirements"): "disable_requirements",
    ("request", "driverCapabilities"): "driver_capabilities",
    ("request", "exclusiveDevices"): "exclusive_devices",
    ("request", "ignoreImexChannels"): "ignore_imex_channels",
    ("request", "legacyImages"): "legacy_images",
    ("request", "onMissingDriver"): "on_missing_driver",
    ("request", "onRefusal"): "on_refusal",
    ("request", "onUnknownCapability"): "on_unknown_capability",
    ("request", "swarmResources"): "swarm_resources",
    ("runtime", "lowLevelRuntimes"): "low_level_runtimes",
}


def path() -> str:
    """Return the path of the settings file."""
    return os.environ.get(PATH_ENV) or DEFAULT_PATH


def load(compile_yaml: Callable[[str], None]) -> Settings:
    """Return the settings of this node, including environment variables.

    `compile_yaml(path)` runs the cold compiler if the compiled form is missing or stale. Raises
    GH1530 with the compiler's reason if the file is broken, GH1105 if it cannot be compiled, and
    GH1533 for an invalid variable.
    """
    return overridden(_of_file(compile_yaml))


def overridden(settings: Settings) -> Settings:
    """Return the same settings with the values of environment variables; raises GH1533."""
    if [name for name in os.environ if name.startswith(_VARIABLES)]:
        from gpuhook.host.hot import settings_environment

        for attribute, value in settings_environment.values(os.environ).items():
            setattr(settings, attribute, value)
    return settings


def _of_file(compile_yaml: Callable[[str], None]) -> Settings:
    source = path()
    try:
        found = os.stat(source)
    except FileNotFoundError:
        return Settings()
    document = compiled(source, found)
    if document is None:
        compile_yaml(source)
        document = compiled(source, found)
    if document is None:
        raise fault("GH1105", path=source, directory=state.directory())
    if isinstance(document.get("error"), str):
        raise fault("GH1530", path=source, reason=document["error"])
    return from_document(document)


def from_document(document: dict[str, object]) -> Settings:
    """Return the settings of a checked document (the object of the YAML file)."""
    settings = Settings()
    for (group, key), attribute in KEYS.items():
        section = document.get(group)
        if isinstance(section, dict) and key in section:
            setattr(settings, attribute, section[key])
    return settings


def compiled_path(source: str) -> str:
    """Return the path of the compiled form of the settings file `source`."""
    name = os.path.abspath(source).strip("/").replace("/", "-")
    return os.path.join(state.directory(), "compiled", "settings-" + name[-200:])


def compiled(source: str, found: os.stat_result) -> dict[str, object] | None:
    """Return the compiled document of `source` if it was made from this version of the file.

    An error that another release of gpuhook found is ignored: this release may accept the file.
    """
    data = state.read(compiled_path(source), _MAX_SIZE)
    first, _, rest = (data or b"").partition(b"\n")
    if first != _key(source, found):
        return None
    try:
        document = fastjson.loads(rest)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    return document if document.get("by") == __version__ or "error" not in document else None


def store(source: str, found: os.stat_result, document: dict[str, object]) -> None:
    """Write the compiled form of `source`; {"error": text} means a broken file."""
    if "error" in document:
        document = {**document, "by": __version__}
    kept = compiled_path(source)
    os.makedirs(os.path.dirname(kept), 0o755, exist_ok=True)
    files.replace(kept, _key(source, found) + b"\n" + fastjson.dumps(document), mode=0o644)


def _key(source: str, found: os.stat_result) -> bytes:
    version = files.version(found).encode()
    return b"gpuhook-settings 1 " + version + b" " + os.fsencode(os.path.abspath(source))
