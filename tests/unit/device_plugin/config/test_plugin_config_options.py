# SPDX-License-Identifier: Apache-2.0
"""The command line and the environment of the device plugin, and their precedence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.config.configuration import ROOT_SECTION, Configuration
from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.config.grammar.grammar import Section, walk
from gpuhook.device_plugin.config.launch_options import Launch, launch
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.errors import GpuhookError

FILE = b"flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true}}\n"


def configuration(
    environ: dict[str, str] | None = None,
    content: bytes = b"",
    command_line: dict[str, str] | None = None,
) -> Configuration:
    """Return the configuration of command line, environment and file."""
    texts = {name: [text] for name, text in (command_line or {}).items()}
    overrides = read_overrides(texts, environ or {})
    assert overrides.findings == []
    reading = config_reader.read(content, "plugin.yaml" if content else "", overrides.overrides)
    allowed = ("has no effect without", "takes precedence")
    assert all(any(a in found.message for a in allowed) for found in reading.findings)
    assert reading.configuration is not None
    return reading.configuration


def findings(environ: dict[str, str], command_line: dict[str, str] | None = None) -> list[str]:
    texts = {name: [text] for name, text in (command_line or {}).items()}
    return [str(found) for found in read_overrides(texts, environ).findings]


def test_command_line_environment_file_is_the_precedence() -> None:
    environ = {"MIG_STRATEGY": "single"}
    assert configuration().flags.mig_strategy == "none"
    assert configuration(content=FILE).flags.mig_strategy == "mixed"
    assert configuration(environ, FILE).flags.mig_strategy == "single"
    assert configuration(environ, FILE, {"mig-strategy": "none"}).flags.mig_strategy == "none"
    assert configuration(environ, FILE).flags.plugin.pass_device_specs is True
    assert configuration({"PASS_DEVICE_SPECS": "0"}, FILE).flags.plugin.pass_device_specs is False


def test_environment_of_the_gpu_operator_is_read() -> None:
    flags = configuration(
        {
            "PASS_DEVICE_SPECS": "true",
            "FAIL_ON_INIT_ERROR": "true",
            "DEVICE_LIST_STRATEGY": "envvar",
            "DEVICE_ID_STRATEGY": "uuid",
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "all",
            "MPS_ROOT": "/run/nvidia/mps",
        }
    ).flags
    assert flags.plugin.pass_device_specs
    assert flags.fail_on_init_error
    assert flags.plugin.device_list_strategy == ("envvar",)
    assert flags.plugin.device_id_strategy == "uuid"
    assert flags.mps_root == "/run/nvidia/mps"


# Variable, value, attribute, and the value of the attribute.
VARIABLES: list[tuple[str, str, str, Any]] = [
    ("MIG_STRATEGY", "mixed", "flags.mig_strategy", "mixed"),
    ("FAIL_ON_INIT_ERROR", "f", "flags.fail_on_init_error", False),
    ("NVIDIA_DRIVER_ROOT", "/d", "flags.driver_root", "/d"),
    ("NVIDIA_DEV_ROOT", "/d", "flags.dev_root", "/d"),
    ("PASS_DEVICE_SPECS", "T", "flags.plugin.pass_device_specs", True),
    (
        "GPUHOOK_AMD_RESOURCE_NAMING_STRATEGY",
        "mixed",
        "flags.amd.resource_naming_strategy",
        "mixed",
    ),
    ("GPUHOOK_AMD_PULSE", "30", "flags.amd.pulse", 30),
    ("GPUHOOK_AMD_DEVICE_LIST_STRATEGY", "cdi-cri", "flags.amd.device_list_strategy", ("cdi-cri",)),
    (
        "DEVICE_LIST_STRATEGY",
        "volume-mounts,cdi-cri",
        "flags.plugin.device_list_strategy",
        ("volume-mounts", "cdi-cri"),
    ),
    ("DEVICE_ID_STRATEGY", "index", "flags.plugin.device_id_strategy", "index"),
    ("GDRCOPY_ENABLED", "1", "flags.gdrcopy_enabled", True),
    ("GDS_ENABLED", "1", "flags.gds_enabled", True),
    ("MOFED_ENABLED", "1", "flags.mofed_enabled", True),
    ("CDI_ANNOTATION_PREFIX", "x/", "flags.plugin.cdi_annotation_prefix", "x/"),
    ("NVIDIA_CDI_HOOK_PATH", "/h", "flags.plugin.cdi_hook_path", "/h"),
    ("NVIDIA_CTK_PATH", "/h", "flags.plugin.cdi_hook_path", "/h"),
    ("CONTAINER_DRIVER_ROOT", "/r", "flags.plugin.container_driver_root", "/r"),
    ("DRIVER_ROOT_CTR_PATH", "/r", "flags.plugin.container_driver_root", "/r"),
    ("MPS_ROOT", "/m", "flags.mps_root", "/m"),
    (
        "SHARED_DEVICES_ALLOCATION_POLICY",
        "packed",
        "flags.plugin.shared_devices_allocation_policy",
        "packed",
    ),
    ("DEVICE_DISCOVERY_STRATEGY", "nvml", "flags.device_discovery_strategy", "nvml"),
    ("IMEX_CHANNEL_IDS", "0", "imex.channel_ids", (0,)),
    ("IMEX_REQUIRED", "true", "imex.required", True),
    ("GFD_NO_TIMESTAMP", "true", "flags.gfd.no_timestamp", True),
    ("GFD_OUTPUT_FILE", "/o", "flags.gfd.output_file", "/o"),
    ("GFD_MACHINE_TYPE_FILE", "/t", "flags.gfd.machine_type_file", "/t"),
    ("GPUHOOK_EXCLUDE_DEVICES", "0,GPU-1", "own.exclude_devices", ("0", "GPU-1")),
    ("GPUHOOK_PRE_START_CHECK", "true", "own.pre_start_check", True),
    ("GPUHOOK_MIN_FREE_MEMORY", "1Ki", "own.min_free_memory", 1024),
    ("GPUHOOK_HOST_FILES_PATH", "/n", "own.host_files_path", "/n"),
    ("GPUHOOK_LABELS", "true", "own.labels", True),
    ("GPUHOOK_LABEL_NODE", "true", "own.label_node", True),
    ("GPUHOOK_ACCELERATOR_LABEL", "true", "own.accelerator_label", True),
    ("GPUHOOK_DEVICE_LABELS", "vram,firmware", "own.device_labels", ("vram", "firmware")),
    ("GPUHOOK_REMOVE_LABELS_ON_EXIT", "1", "own.remove_labels_on_exit", True),
    ("GPUHOOK_HEALTH_CRITICAL_XIDS", "79", "own.health.critical_xids", frozenset({79})),
    ("GPUHOOK_HEALTH_IGNORED_XIDS", "79", "own.health.ignored_xids", frozenset({79})),
    ("GPUHOOK_HEALTH_ENABLED_XIDS", "79", "own.health.enabled_xids", frozenset({79})),
    ("GPUHOOK_HEALTH_ASK_DRIVER", "0", "own.health.ask_driver", False),
    ("GPUHOOK_HEALTH_POLL_INTERVAL", "5s", "own.health.poll_interval", 5.0),
    ("GPUHOOK_HEALTH_TAINT_EFFECT", "NoExecute", "own.health.taint_effect", "NoExecute"),
    ("GPUHOOK_METRICS_ADDRESS", ":1", "own.metrics.address", ":1"),
    ("GPUHOOK_MEMORY_RESERVE", "512Mi", "own.memory_reserve", 512 << 20),
    ("GPUHOOK_GUARD_ACTION", "kill", "own.guard.action", "kill"),
    ("GPUHOOK_GUARD_GRACE", "0s", "own.guard.grace", 0.0),
    ("GPUHOOK_GUARD_KILL_AFTER", "3s", "own.guard.kill_after", 3.0),
    ("GPUHOOK_GUARD_TOLERANCE", "1.5", "own.guard.tolerance", 1.5),
    ("GPUHOOK_GUARD_SHORTEST_INTERVAL", "500ms", "own.guard.shortest_interval", 0.5),
    ("GPUHOOK_GUARD_LONGEST_INTERVAL", "1m", "own.guard.longest_interval", 60.0),
]


@pytest.mark.parametrize(("variable", "text", "attribute", "value"), VARIABLES)
def test_variable_and_option_set_their_attribute(
    variable: str, text: str, attribute: str, value: object
) -> None:
    option = next(option for option in OPTIONS if variable in option.variables)
    for found in (configuration({variable: text}), configuration({}, b"", {option.name: text})):
        for name in attribute.split("."):
            found = getattr(found, name)
        assert found == value
    assert configuration() != configuration({variable: text})


def test_table_has_all_variables() -> None:
    """The next tests have the two exceptions."""
    listed = {variable for variable, *_ in VARIABLES}
    known = {variable for option in OPTIONS if option.key for variable in option.variables}
    of_health = {"DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"}
    assert known - listed == of_health, "add these variables to VARIABLES"


def test_options_of_labels_are_no_options_of_the_plugin() -> None:
    """Their variables are ignored."""
    assert not {option.name for option in OPTIONS} & {"sleep-interval", "interval", "oneshot"}
    assert read_overrides({}, {"GFD_SLEEP_INTERVAL": "soon", "GFD_ONESHOT": "x"}).findings == []


def test_names_and_variables_of_options_are_unique() -> None:
    names = [name for option in OPTIONS for name in (option.name, *option.aliases)]
    variables = [variable for option in OPTIONS for variable in option.variables]
    assert len(set(names)) == len(names)
    assert len(set(variables)) == len(variables)


BAD = [
    (
        "PASS_DEVICE_SPECS",
        "yes",
        'flags.plugin.passDeviceSpecs: must be true or false, found the text "yes"',
    ),
    (
        "DEVICE_LIST_STRATEGY",
        "envvar,x",
        (
            "flags.plugin.deviceListStrategy: must be one of envvar, volume-mounts, "
            'cdi-annotations, cdi-cri, host-files, found the text "x"'
        ),
    ),
    ("IMEX_CHANNEL_IDS", "1", "imex.channelIDs: must be [] or [0], found [1]"),
    (
        "DEVICE_DISCOVERY_STRATEGY",
        "tegra",
        'flags.deviceDiscoveryStrategy: must be one of auto, nvml, found the text "tegra"',
    ),
    (
        "FALLBACK_STRATEGIES",
        "any",
        'must be one of named, single, empty, found the text "any"',
    ),
]


@pytest.mark.parametrize(("variable", "text", "what"), BAD)
def test_invalid_value_names_its_variable_or_option(variable: str, text: str, what: str) -> None:
    """The launch is refused."""
    option = next(option for option in OPTIONS if variable in option.variables)
    assert findings({variable: text}) == [f"the environment variable {variable}: error: {what}"]
    assert findings({}, {option.name: text}) == [f"--{option.name}: error: {what}"]
    with pytest.raises(GpuhookError) as caught:
        launch(read_overrides({}, {variable: text}))
    assert caught.value.code == "GH1803"
    problem = what.removeprefix(f"{option.key}: ")
    assert caught.value.message == f"the environment variable {variable}: {problem}"


def test_empty_variable_is_unset() -> None:
    """An empty KUBELET_SOCKET is set."""
    empty = {variable: "" for option in OPTIONS for variable in option.variables}
    assert configuration(empty, FILE) == configuration({}, FILE)
    assert launch(read_overrides({}, empty)) == launch(read_overrides({}, {"KUBELET_SOCKET": ""}))
    assert launch(read_overrides({}, {})) == Launch()


def test_empty_list_of_strategies_is_refused() -> None:
    """NVIDIA's plugin refuses it, too."""
    (line,) = findings({}, {"device-list-strategy": ""})
    assert line.startswith(
        "--device-list-strategy: error: flags.plugin.deviceListStrategy: is empty"
    )


HEALTH = [
    ("all", "", Health(ignored_xids="all")),
    ("xids", "", Health(ignored_xids="all")),
    ("all", "79", Health(ignored_xids="all", enabled_xids=frozenset({79}))),
    ("79, 48", "", Health(ignored_xids=frozenset({79, 48}))),
    ("", "31", Health(enabled_xids=frozenset({31}))),
    ("", "all", Health(enabled_xids="all")),
]


@pytest.mark.parametrize(("disable", "enable", "health"), HEALTH)
def test_health_check_variables_of_nvidia_are_read(
    disable: str, enable: str, health: Health
) -> None:
    """DP_ENABLE_HEALTHCHECKS takes precedence over DP_DISABLE_HEALTHCHECKS."""
    environ = {"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable}
    found = configuration(environ).own.health
    assert found == health
    if "79" in enable:
        assert found.rule(79) is True


def test_malformed_xids_are_ignored_with_a_warning() -> None:
    """NVIDIA's plugin ignores them, too."""
    overrides = read_overrides({}, {"DP_DISABLE_HEALTHCHECKS": "foo, 79 ,-1"})
    assert [str(found) for found in overrides.findings] == [
        "the environment variable DP_DISABLE_HEALTHCHECKS: warning: gpuhook.health.ignoredXids: "
        f'the text "{word}" is not an XID and is ignored'
        for word in ("foo", "-1")
    ]
    assert overrides.overrides["gpuhook.health.ignoredXids"].value == frozenset({79})
    launch(overrides)


def test_option_without_effect_is_a_warning() -> None:
    for environ in ({"CDI_DISABLE_HOOKS": "all"}, {"USE_NODE_FEATURE_API": "true"}):
        (line,) = findings(environ)
        assert ": warning: has no effect: " in line
    assert findings({"USE_NODE_FEATURE_API": "false"}) == []


def test_launch_has_the_options_of_all_sources() -> None:
    found = launch(
        read_overrides(
            {"library-search-path": ["/a", "/b"], "strict-config": ["true"]},
            {
                "NODE_NAME": "node-1",
                "CONFIG_FILE_SRCDIR": "/configs",
                "DEFAULT_CONFIG": "any",
                "FALLBACK_STRATEGIES": "single,empty",
                "KUBELET_SOCKET": "/k/kubelet.sock",
                "GPUHOOK_DRIVER_ROOT": "/driver",
                "GPUHOOK_PROCESS_NAME": "nvidia-device-plugin",
                "POD_RESOURCES_SOCKET": "/k/pods.sock",
                "GPUHOOK_CDI_DIRECTORY": "/etc/cdi",
            },
        )
    )
    assert found == Launch(
        source=ConfigSource(
            directory="/configs", default_name="any", fallbacks=("single", "empty")
        ),
        strict=True,
        kubelet_socket="/k/kubelet.sock",
        plugin_directory="/k",
        pod_resources_socket="/k/pods.sock",
        cdi_directory="/etc/cdi",
        node_name="node-1",
        node_label="nvidia.com/device-plugin.config",
        process_name="nvidia-device-plugin",
        node_driver_root="/driver",
        library_search_path=("/a", "/b"),
    )
    assert launch(
        read_overrides({}, {"GPUHOOK_LIBRARY_SEARCH_PATH": "/a:/b"})
    ).library_search_path == (
        "/a",
        "/b",
    )


def test_empty_kubelet_socket_has_the_default_directory() -> None:
    """Registration is disabled."""
    found = launch(read_overrides({}, {"KUBELET_SOCKET": ""}))
    assert (found.kubelet_socket, found.plugin_directory) == (
        "",
        "/var/lib/kubelet/device-plugins",
    )


def test_config_file_and_directory_exclude_each_other() -> None:
    with pytest.raises(GpuhookError) as caught:
        launch(read_overrides({}, {"CONFIG_FILE": "/f", "CONFIG_FILE_SRCDIR": "/d"}))
    assert caught.value.code == "GH1804"


def test_documentation_has_every_option() -> None:
    """Each option has one row with its variables and its key."""
    page = (Path(__file__).parents[4] / "docs/reference/device-plugin.md").read_text("utf-8")
    lines = page.splitlines()
    for option in OPTIONS:
        names = [f"--{name}" for name in (option.name, *option.aliases)]
        words = [*names, *option.variables, *([option.key] if option.key else [])]
        assert any(all(f"`{word}`" in line for word in words) for line in lines), option.name


def test_documentation_has_every_key_without_an_option() -> None:
    """A key of mps and timeSlicing has one row."""
    page = (Path(__file__).parents[4] / "docs/reference/device-plugin.md").read_text("utf-8")
    for path, known in walk(ROOT_SECTION):
        if not isinstance(known.kind, Section):
            there = path.replace("sharing.mps.", "sharing.timeSlicing.")
            assert f"`{path}`" in page or f"`{there}`" in page


def test_choice_without_a_directory_is_a_warning() -> None:
    """The defaults apply."""
    (finding,) = read_overrides({}, {"DEFAULT_CONFIG": "default"}).findings
    assert str(finding) == (
        "--default-config (DEFAULT_CONFIG): warning: has no effect without a directory of "
        "configurations, --config-dir"
    )
    both = {"DEFAULT_CONFIG": "default", "CONFIG_FILE_SRCDIR": "/available-configs"}
    assert read_overrides({}, both).findings == []
