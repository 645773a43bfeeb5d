# SPDX-License-Identifier: Apache-2.0
"""The configuration file of the device plugin: its keys and its errors."""

from __future__ import annotations

import json

import pytest

from gpuhook.device_plugin.config.config_reader import Override, read
from gpuhook.device_plugin.config.configuration import (
    AmdFlags,
    Configuration,
    Flags,
    Imex,
    LabelFlags,
    Naming,
    PluginFlags,
)
from gpuhook.device_plugin.config.gpuhook_section import Health, Metrics, Own
from gpuhook.device_plugin.config.grammar import yaml_tree
from gpuhook.device_plugin.config.sharing_section import SharedResource, Sharing
from gpuhook.host import bounded_yaml
from tests.unit.config_texts import ENTRY, HERE, good, lines, one, parsed, sharing

# The ConfigMap of NVIDIA's blog post, with its indentation restored.
SEED = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    resources:
    - name: {name}
      replicas: 4
"""
MPS_ROOT = {"flags.mpsRoot": Override("/run/nvidia/mps", "--mps-root")}


@pytest.mark.parametrize("name", ["nvidia.com/gpu", '"nvidia.com/gpu"'])
def test_config_map_of_the_gpu_operator_is_read(name: str) -> None:
    configuration = good(SEED.format(name=name))
    assert configuration.flags.mig_strategy == "none"
    assert configuration.sharing == Sharing(
        strategy="time-slicing", resources=(SharedResource("nvidia.com/gpu", 4),)
    )
    assert configuration == Configuration(flags=configuration.flags, sharing=configuration.sharing)


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_samples_of_the_gpu_operator_are_read(strategy: str) -> None:
    configuration = good(f"version: v1\nflags:\n  migStrategy: {strategy}\n")
    assert configuration == Configuration(flags=Flags(mig_strategy=strategy))


@pytest.mark.parametrize("text", ["---\n", "null", "{}", "version: v1\n", "flags:\n"])
def test_empty_keys_are_the_defaults(text: str) -> None:
    assert good(text) == Configuration()


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_empty_file_is_a_warning_with_the_defaults(text: str) -> None:
    reading = parsed(text)
    assert reading.configuration == Configuration()
    assert lines(reading) == [" warning: is empty: all keys have their defaults"]
    assert read(b"", "").findings == ()  # no file: no warning


WHOLE = """\
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  nvidiaDevRoot: /dev-root
  gdrcopyEnabled: true
  gdsEnabled: true
  mofedEnabled: true
  mpsRoot: /run/mps
  deviceDiscoveryStrategy: nvml
  useNodeFeatureAPI: false
  amd: {resourceNamingStrategy: mixed, pulse: 30, deviceListStrategy: [envvar, cdi-cri]}
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, cdi-cri, host-files]
    deviceIDStrategy: index
    cdiAnnotationPrefix: cdi.example.com/
    nvidiaCTKPath: /opt/gpuhook-hook
    containerDriverRoot: /driver
    sharedDevicesAllocationPolicy: packed
  gfd:
    oneshot: true
    noTimestamp: true
    sleepInterval: infinite
    outputFile: ""
    machineTypeFile: /machine
resources:
  gpus:
  - {pattern: "Tesla T4", name: t4}
  - {pattern: "*", name: nvidia.com/gpu}
  mig:
  - {pattern: "1g.*", name: small}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: gpu, replicas: 1}
    - {name: t4, rename: t4-shared, devices: [0, "0:1", 1:2, GPU-1a, "Tesla T4"], replicas: 3}
    - {name: t4, rename: t4-twice, devices: [7], replicas: 2}
    - {name: small, devices: 2, replicas: 2}
imex: {channelIDs: [0], required: true}
gpuhook:
  excludeDevices: [3, GPU-dead, "00000000:00:1e.0"]
  preStartCheck: true
  minFreeMemory: 512Mi
  hostFilesPath: /opt/nvidia
  labels: true
  labelNode: true
  removeLabelsOnExit: true
  acceleratorLabel: true
  deviceLabels: [vram, firmware]
  health:
    criticalXids: [48, 79]
    ignoredXids: [13]
    enabledXids: [31]
    askDriver: false
    pollInterval: 1m30s
  metrics: {address: ""}
"""


def test_every_key_reaches_the_configuration() -> None:
    """A file with all keys gives a configuration that differs from all defaults."""
    assert good(WHOLE) == Configuration(
        flags=Flags(
            mig_strategy="mixed",
            fail_on_init_error=False,
            driver_root="/run/nvidia/driver",
            dev_root="/dev-root",
            gdrcopy_enabled=True,
            gds_enabled=True,
            mofed_enabled=True,
            mps_root="/run/mps",
            device_discovery_strategy="nvml",
            amd=AmdFlags("mixed", 30, ("envvar", "cdi-cri")),
            plugin=PluginFlags(
                pass_device_specs=True,
                device_list_strategy=("envvar", "cdi-cri", "host-files"),
                device_id_strategy="index",
                cdi_annotation_prefix="cdi.example.com/",
                cdi_hook_path="/opt/gpuhook-hook",
                container_driver_root="/driver",
                shared_devices_allocation_policy="packed",
            ),
            gfd=LabelFlags(
                oneshot=True,
                no_timestamp=True,
                sleep_interval=None,
                output_file="",
                machine_type_file="/machine",
            ),
        ),
        gpus=(Naming("Tesla T4", "nvidia.com/t4"), Naming("*", "nvidia.com/gpu")),
        mig=(Naming("1g.*", "nvidia.com/small"),),
        sharing=Sharing(
            strategy="time-slicing",
            rename_by_default=True,
            refuses_more_than_one=True,
            resources=(
                SharedResource("nvidia.com/gpu", 1),
                SharedResource(
                    "nvidia.com/t4",
                    3,
                    "nvidia.com/t4-shared",
                    ("0", "0:1", "1:2", "GPU-1a", "Tesla T4"),
                ),
                SharedResource("nvidia.com/t4", 2, "nvidia.com/t4-twice", ("7",)),
                SharedResource("nvidia.com/small", 2, None, 2),
            ),
        ),
        imex=Imex((0,), required=True),
        own=Own(
            exclude_devices=("3", "GPU-dead", "00000000:00:1e.0"),
            pre_start_check=True,
            min_free_memory=512 << 20,
            host_files_path="/opt/nvidia",
            labels=True,
            label_node=True,
            remove_labels_on_exit=True,
            accelerator_label=True,
            device_labels=("vram", "firmware"),
            health=Health(
                frozenset({48, 79}),
                frozenset({13}),
                frozenset({31}),
                ask_driver=False,
                poll_interval=90.0,
            ),
            metrics=Metrics(""),
        ),
    )


@pytest.mark.parametrize("layout", [{"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}])
def test_json_is_read_like_yaml(layout: dict[str, object]) -> None:
    """Errors have their lines in any layout."""
    document = {
        "version": "v1",
        "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
    }
    text = json.dumps(document, **layout)  # type: ignore[arg-type]
    assert good(text).sharing.resources == (SharedResource("nvidia.com/gpu", 4),)
    reading = parsed(text.replace("4", "0"))
    assert [f.message for f in reading.findings] == ["must be 1 or more, found 0"]
    assert reading.findings[0].line == (8 if "indent" in layout else 1)


FORMAT_HINT = "use lower-case letters, digits, '-' and '.', as in nvidia.com/gpu"
DEVICE_HINT = 'write it like 0, "0:1", GPU-..., MIG-... or "Tesla T4"'

# The exact messages. NVIDIA's plugin has other texts.
TABLE: dict[str, tuple[str, list[str]]] = {
    "replicas 0": (
        one("name: gpu, replicas: 0"),
        [f"4:29: error: {ENTRY}.replicas: must be 1 or more, found 0"],
    ),
    "replicas -3": (
        one("name: gpu, replicas: -3"),
        [f"4:29: error: {ENTRY}.replicas: must be 1 or more, found -3"],
    ),
    "replicas far too many": (
        one("name: gpu, replicas: 1000000000"),
        [f"4:29: error: {ENTRY}.replicas: must be 4096 or less, found 1000000000"],
    ),
    "replicas as a text": (
        one('name: gpu, replicas: "4"'),
        [f'4:29: error: {ENTRY}.replicas: must be an integer, found the text "4"'],
    ),
    "replicas 2.5": (
        one("name: gpu, replicas: 2.5"),
        [f"4:29: error: {ENTRY}.replicas: must be an integer, found 2.5"],
    ),
    "replicas true": (
        one("name: gpu, replicas: true"),
        [f"4:29: error: {ENTRY}.replicas: must be an integer, found true"],
    ),
    "replicas missing": (
        one("name: gpu"),
        [f"4:7: error: {ENTRY}.replicas: is missing"],
    ),
    "replicas empty": (
        one("name: gpu, replicas: "),
        [f"4:7: error: {ENTRY}.replicas: is missing"],
    ),
    "name missing": (
        one("replicas: 2"),
        [f"4:7: error: {ENTRY}.name: is missing"],
    ),
    "resources empty": (
        sharing("resources: []\n"),
        [
            (
                "3:16: error: sharing.timeSlicing.resources: is empty: at least one resource is "
                "required"
            )
        ],
    ),
    "resources missing": (
        sharing("renameByDefault: true\n"),
        ["3:5: error: sharing.timeSlicing.resources: is missing"],
    ),
    "timeSlicing null": (
        "sharing:\n  timeSlicing: null\n",
        ["2:16: error: sharing.timeSlicing.resources: is missing"],
    ),
    "timeSlicing {}": (
        "sharing:\n  timeSlicing: {}\n",
        ["2:16: error: sharing.timeSlicing.resources: is missing"],
    ),
    "resources in another case": (
        sharing("Resources: [{name: gpu, replicas: 2}]\n"),
        [
            (
                "3:5: error: sharing.timeSlicing.Resources: unknown key; keys are "
                "case-sensitive -> did you mean sharing.timeSlicing.resources?"
            )
        ],
    ),
    "timeSlicing in another case": (
        sharing("resources: [{name: gpu, replicas: 2}]\n", "timeslicing"),
        [
            (
                "2:3: error: sharing.timeslicing: unknown key; keys are case-sensitive -> "
                "did you mean sharing.timeSlicing?"
            )
        ],
    ),
    "name $invalid$": (
        one("name: $invalid$, replicas: 2"),
        [
            (
                f"4:14: error: {ENTRY}.name: incorrect format for a resource name: the text "
                f'"$invalid$" -> {FORMAT_HINT}'
            )
        ],
    ),
    "name of another vendor": (
        one("name: intel.com/gpu, replicas: 2"),
        [
            (
                f"4:14: error: {ENTRY}.name: is a resource of intel.com: "
                "only nvidia.com/ and amd.com/ resources can be offered -> write "
                "nvidia.com/gpu, or gpu"
            )
        ],
    ),
    "name too long": (
        one(f"name: {'a' * 53}, replicas: 2"),
        [(f"4:14: error: {ENTRY}.name: has 64 characters with nvidia.com/; at most 63")],
    ),
    "name too long when it is shared": (
        sharing(f"renameByDefault: true\nresources:\n- {{name: {'a' * 50}, replicas: 2}}\n"),
        [
            (
                f"5:14: error: {ENTRY}.name: "
                "nvidia.com/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.shared "
                "has 68 characters; at most 63 -> set another name with `rename`"
            )
        ],
    ),
    "the same name twice": (
        sharing("resources:\n- {name: gpu, replicas: 4}\n- {name: nvidia.com/gpu, replicas: 2}\n"),
        [
            (
                "5:7: error: sharing.timeSlicing.resources[1]: duplicate: "
                "sharing.timeSlicing.resources[0] already shares nvidia.com/gpu, for all "
                "of its devices -> several entries for one resource need "
                "`devices` that do not overlap"
            )
        ],
    ),
    "devices some": (
        one("name: gpu, devices: some, replicas: 2"),
        [
            (
                f'4:28: error: {ENTRY}.devices: must be "all", a '
                'count or a list, found the text "some" -> for a single device, write a list: '
                'devices: ["some"]'
            )
        ],
    ),
    "devices none": (
        one("name: gpu, devices: [], replicas: 2"),
        [
            (
                f"4:28: error: {ENTRY}.devices: lists no device "
                '-> omit the key for all devices, or write "all"'
            )
        ],
    ),
    "devices 0": (
        one("name: gpu, devices: 0, replicas: 2"),
        [f"4:28: error: {ENTRY}.devices: must be 1 to 4096 as a count, found 0"],
    ),
    "devices with what is none": (
        one("name: gpu, devices: [0, true], replicas: 2"),
        [
            (
                f"4:32: error: {ENTRY}.devices[1]: must be an index, a UUID or a model, found "
                f"true -> {DEVICE_HINT}"
            )
        ],
    ),
    "version v2": (
        "version: v2\n",
        ['1:10: error: version: must be "v1", found the text "v2"'],
    ),
    "migStrategy": (
        "flags: {migStrategy: both}\n",
        [
            (
                "1:22: error: flags.migStrategy: must be one of none, single, mixed, found "
                'the text "both"'
            )
        ],
    ),
    "deviceListStrategy": (
        "flags: {plugin: {deviceListStrategy: [envvar, file]}}\n",
        [
            (
                "1:47: error: flags.plugin.deviceListStrategy[1]: must be one of envvar, "
                'volume-mounts, cdi-annotations, cdi-cri, host-files, found the text "file"'
            )
        ],
    ),
    "deviceListStrategy empty": (
        "flags: {plugin: {deviceListStrategy: []}}\n",
        [
            (
                "1:38: error: flags.plugin.deviceListStrategy: is empty: must "
                "be one or more of envvar, volume-mounts, cdi-annotations, cdi-cri, host-files"
            )
        ],
    ),
    "deviceIDStrategy": (
        "flags: {plugin: {deviceIDStrategy: name}}\n",
        [
            (
                "1:36: error: flags.plugin.deviceIDStrategy: must be one of uuid, index, "
                'found the text "name"'
            )
        ],
    ),
    "policy": (
        "flags: {plugin: {sharedDevicesAllocationPolicy: random}}\n",
        [
            (
                "1:49: error: flags.plugin.sharedDevicesAllocationPolicy: must be one of "
                'distributed, packed, found the text "random"'
            )
        ],
    ),
    "bool as a text": (
        'flags: {failOnInitError: "true"}\n',
        [('1:26: error: flags.failOnInitError: must be true or false, found the text "true"')],
    ),
    "imex [1]": (
        "imex: {channelIDs: [1]}\n",
        ["1:20: error: imex.channelIDs: must be [] or [0], found [1]"],
    ),
    "a pattern without a name": (
        "resources: {gpus: [{pattern: '*'}]}\n",
        ["1:20: error: resources.gpus[0].name: is missing"],
    ),
    "a key twice": (
        "flags: {}\nversion: v1\nflags: {}\n",
        ["3:1: error: flags: is set twice, first in line 1"],
    ),
    "a section that is none": (
        "flags: [migStrategy]\n",
        ["1:8: error: flags: must be a mapping, found a list"],
    ),
    "a list that is none": (
        "sharing: {timeSlicing: {resources: {name: gpu, replicas: 2}}}\n",
        [
            (
                "1:36: error: sharing.timeSlicing.resources: must be a list, found a mapping "
                "-> begin each entry with '- '"
            )
        ],
    ),
    "an empty entry": (
        "sharing: {timeSlicing: {resources: [null]}}\n",
        [f"1:37: error: {ENTRY}: must be a mapping, but is empty"],
    ),
    "a text": (
        "nothing\n",
        [
            (
                '1:1: error: must be a mapping, found the text "nothing" -> a configuration begins '
                "with `version: v1`"
            )
        ],
    ),
    "a ConfigMap": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
        [
            (
                "2:1: error: kind: this is a Kubernetes manifest, not a configuration -> "
                "use the text of one configuration below `data` of a ConfigMap"
            )
        ],
    ),
    "the values of the GPU operator": (
        "devicePlugin:\n  config:\n    data:\n      default: |-\n        version: v1\n",
        [
            (
                "1:1: error: devicePlugin: these are the values of a Helm chart, not a "
                "configuration -> use the text of one configuration below "
                "devicePlugin.config.data"
            )
        ],
    ),
    "the values of the chart of NVIDIA's plugin": (
        "config:\n  map:\n    default: |-\n      version: v1\n",
        [
            (
                "1:1: error: config: these are the values of a Helm chart, not a "
                "configuration -> use the text of one configuration below config.map"
            )
        ],
    ),
    "the data of a ConfigMap": (
        "default: |-\n  version: v1\n  sharing: {}\n",
        [
            (
                "1:1: error: default: is a multi-line text, like the "
                "data of a ConfigMap -> use only that text, without indentation"
            )
        ],
    ),
    "a known key with a text of several lines": (
        "flags: |\n  a: b\n  c: d\n",
        [r'1:8: error: flags: must be a mapping, found the text "a: b\nc: d\n"'],
    ),
    "a foreign tag": (
        "version: !!binary v1\n",
        ["1:10: error: version: the tag tag:yaml.org,2002:binary is not supported"],
    ),
    "a tag of one's own": (
        "version: !v v1\n",
        ["1:10: error: version: the tag !v is not supported"],
    ),
    "a duration that is none": (
        "flags: {gfd: {sleepInterval: 1 minute}}\n",
        [
            (
                '1:30: error: flags.gfd.sleepInterval: must be a duration or "infinite", '
                'found the text "1 minute" -> write it like 90s, 1m30s or 500ms; a number is '
                "nanoseconds"
            )
        ],
    ),
    "seconds that are nanoseconds": (
        "gpuhook: {health: {pollInterval: 60}}\n",
        [
            (
                "1:34: error: gpuhook.health.pollInterval: must be 0.1s or longer, found 60 "
                "-> write it like 90s, 1m30s or 500ms; a number is nanoseconds"
            )
        ],
    ),
    "an amount that is none": (
        "gpuhook: {minFreeMemory: 512 MB}\n",
        [
            (
                "1:26: error: gpuhook.minFreeMemory: must be an amount of memory, found the "
                'text "512 MB" -> write it like 512Mi or 2Gi'
            )
        ],
    ),
    "an XID that is none": (
        "gpuhook: {health: {criticalXids: [79, -1]}}\n",
        [("1:39: error: gpuhook.health.criticalXids[1]: must be the number of an XID, found -1")],
    ),
    "an address without a port": (
        "gpuhook: {metrics: {address: localhost}}\n",
        [
            (
                "1:30: error: gpuhook.metrics.address: must be an address with a port, "
                'found the text "localhost" -> write it like 127.0.0.1:9395; an empty '
                "address disables the endpoint"
            )
        ],
    ),
    "a path that is relative": (
        "flags: {nvidiaDriverRoot: driver}\n",
        [
            (
                "1:27: error: flags.nvidiaDriverRoot: must be an absolute path, found the "
                'text "driver"'
            )
        ],
    ),
    "indentation with a tab": (
        "flags:\n\tmigStrategy: none\n",
        [
            (
                "2:1: error: found character that cannot start any token -> indent YAML "
                "with spaces: this line has a tab"
            )
        ],
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_error_has_place_key_and_requirement(case: str) -> None:
    text, wanted = TABLE[case]
    reading = parsed(text)
    assert lines(reading) == wanted
    assert reading.configuration is None


def test_key_that_is_not_a_text_is_an_error() -> None:
    reading = parsed("? [a]\n: |\n  b\n  c\n")
    assert lines(reading) == ["1:3: error: a key must be a string, found a list"]


def test_all_errors_are_reported_in_order() -> None:
    reading = parsed(
        """\
        version: v2
        flags:
          migStrategy: 1
          failOnInitError: 2
        sharing:
          timeSlicing:
            resources:
            - {name: gpu, replicas: 0}
            - {name: gpu}
        """
    )
    assert [(found.line, found.path) for found in reading.findings] == [
        (1, "version"),
        (3, "flags.migStrategy"),
        (4, "flags.failOnInitError"),
        (8, "sharing.timeSlicing.resources[0].replicas"),
        (9, "sharing.timeSlicing.resources[1].replicas"),
    ]


KNOWN_KEYS = "known keys are version, flags, resources, sharing, imex, mps, gpuhook"
UNKNOWN = [
    ("flags: {renameByDefault: true}", "did you mean sharing.timeSlicing.renameByDefault?"),
    ("flags: {passDeviceSpecs: true}", "did you mean flags.plugin.passDeviceSpecs?"),
    ("flags: {mig-strategy: none}", "did you mean flags.migStrategy?"),
    ("flags: {migStrategie: none}", "did you mean flags.migStrategy?"),
    ("timeSlicing: {}", "did you mean sharing.timeSlicing?"),
    ("sharing: {timeSlice: {}}", "did you mean sharing.timeSlicing?"),
    ("zzz: 1", KNOWN_KEYS),
    ("config: default", KNOWN_KEYS),  # of charts, but without a configuration
    ("devicePlugin: []", KNOWN_KEYS),
]


@pytest.mark.parametrize(("text", "hint"), UNKNOWN)
def test_unknown_key_is_a_warning_with_the_nearest_key(text: str, hint: str) -> None:
    """Strict mode makes it an error."""
    reading = parsed(text)
    (found,) = reading.findings
    assert (found.severity, found.message, found.hint) == ("warning", "unknown key, ignored", hint)
    assert reading.configuration == Configuration()
    strict = parsed(text, strict=True)
    assert [f.severity for f in strict.findings] == ["error"]
    assert strict.configuration is None


@pytest.mark.parametrize("text", [one("name: gpu, replicas: 1"), one("name: gpu, replicas: 01")])
def test_one_replica_is_not_shared(text: str) -> None:
    """`replicas: 1` is valid; NVIDIA's plugin refuses it."""
    assert good(text).sharing.resources == (SharedResource("nvidia.com/gpu", 1),)


ACCEPTED = [
    ("name: gpu, replicas: 2", SharedResource("nvidia.com/gpu", 2)),
    ("name: nvidia.com/foo, replicas: 2", SharedResource("nvidia.com/foo", 2)),  # the node decides
    (
        "name: gpu, replicas: 2, devices: [0], rename: x",
        SharedResource("nvidia.com/gpu", 2, devices=("0",), rename="nvidia.com/x"),
    ),
]


@pytest.mark.parametrize(("entry", "resource"), ACCEPTED)
def test_names_without_vendor_and_lists_of_devices_are_accepted(
    entry: str, resource: SharedResource
) -> None:
    assert good(one(entry)).sharing.resources == (resource,)


DEVICES = [
    ("all", "all", "all of its devices"),
    ("[0]", "all", None),  # the first entry has the other devices
    ("all", "[0]", "all of its devices"),
    ("2", "3", "the same first devices"),
    ("2", "[1, 5]", "device 1"),
    ("2", "[2]", None),
    ("[0, 1]", "[1, 2]", "device 1"),
    ("[0]", "[1]", None),
    ("[GPU-1]", "[GPU-1, GPU-2]", "device GPU-1"),
    ("[0]", "[GPU-1]", None),  # the node decides whether they are one device
    ("['0:1']", "['1:1']", None),
    ("1", "['0:1']", None),
    ("[Tesla T4]", "[Tesla T4]", "device Tesla T4"),
]


@pytest.mark.parametrize(("first", "second", "common"), DEVICES)
def test_entries_with_a_common_device_are_an_error(
    first: str, second: str, common: str | None
) -> None:
    reading = parsed(
        sharing(
            f"resources:\n- {{name: gpu, devices: {first}, replicas: 2}}\n"
            f"- {{name: gpu, devices: {second}, replicas: 3}}\n"
        )
    )
    if common is None:
        assert reading.findings == ()
        return
    (found,) = reading.findings
    assert (found.severity, found.line) == ("error", 5)
    assert found.message.endswith(f", for {common}")


COLLISIONS = [
    (
        "- {name: gpu, rename: x, replicas: 2}\n- {name: t4, rename: x, replicas: 2}\n",
        (
            "sharing.timeSlicing.resources[0] already has the name nvidia.com/x: each "
            "name is for one resource"
        ),
    ),
    (
        "- {name: gpu, replicas: 2}\n- {name: t4, rename: gpu, replicas: 2}\n",
        (
            "sharing.timeSlicing.resources[0] already has the name nvidia.com/gpu: each "
            "name is for one resource"
        ),
    ),
    (
        (
            "- {name: other, rename: y, devices: [0], replicas: 2}\n"
            "- {name: gpu, rename: other, replicas: 2}\n"
        ),
        "`resources` already has the name nvidia.com/other",
    ),
    (
        "- {name: gpu, rename: other, replicas: 2}\n",
        "`resources` already has the name nvidia.com/other",
    ),
]


@pytest.mark.parametrize(("entries", "message"), COLLISIONS)
def test_two_resources_with_one_name_are_an_error(entries: str, message: str) -> None:
    naming = "resources: {gpus: [{pattern: 'A*', name: other}, {pattern: '*', name: gpu}]}\n"
    reading = parsed(naming + sharing("resources:\n" + entries))
    assert [found.message for found in reading.findings] == [message]
    assert reading.configuration is None


def test_rename_by_default_keeps_the_name_of_one_replica() -> None:
    """Another resource cannot have that name, but the name with .shared."""
    naming = "resources: {gpus: [{pattern: 'A*', name: other}, {pattern: '*', name: gpu}]}\n"
    entries = "renameByDefault: true\nresources:\n- {name: gpu, replicas: 1}\n"
    taking = "- {name: other, rename: %s, replicas: 2}\n"
    taken = parsed(naming + sharing(entries + taking % "gpu"))
    assert [found.message for found in taken.findings] == [
        (
            "sharing.timeSlicing.resources[0] already has the name nvidia.com/gpu: each "
            "name is for one resource"
        )
    ]
    good(naming + sharing(entries + taking % "gpu.shared"))


def test_entries_of_one_resource_can_have_the_same_new_name() -> None:
    good(
        sharing(
            "resources:\n- {name: gpu, rename: x, devices: [0], replicas: 2}\n"
            "- {name: gpu, rename: x, devices: [1], replicas: 3}\n"
        )
    )


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "gpuhook: {minFreeMemory: 1Gi}",
            (
                "1:26: warning: gpuhook.minFreeMemory: has no effect without "
                "gpuhook.preStartCheck -> set gpuhook.preStartCheck: true"
            ),
        ),
        (
            "imex: {required: true, channelIDs: []}",
            (
                "1:18: warning: imex.required: has no effect without imex.channelIDs -> "
                "set imex.channelIDs: [0]"
            ),
        ),
        (
            "resources: {mig: [{pattern: '*', name: slice}]}",
            (
                "1:18: warning: resources.mig: has no effect with migStrategy none: no MIG "
                "instance is offered -> set flags.migStrategy: mixed"
            ),
        ),
    ],
)
def test_key_without_effect_is_a_warning(text: str, warning: str) -> None:
    assert lines(parsed(text)) == [warning]
    good("gpuhook: {minFreeMemory: 0, preStartCheck: false}\nimex: {required: false}")


MPS = sharing("resources:\n- {name: gpu, replicas: 2}\n", "mps")


def test_mps_root_is_read_from_each_source() -> None:
    """MPS refuses more than one replica."""
    for root in ("flags: {mpsRoot: /mps}\n", "mps: {root: /mps}\n"):
        configuration = good(root + MPS)
        assert (configuration.sharing.strategy, configuration.flags.mps_root) == ("mps", "/mps")
        assert configuration.sharing.refuses_more_than_one
    reading = read(("mps: {root: /mps}\n" + MPS).encode(), HERE, MPS_ROOT)
    assert reading.configuration is not None
    assert reading.configuration.flags.mps_root == "/run/nvidia/mps"
    assert reading.findings == ()


MPS_WRONG = [
    (
        MPS,
        (
            "3:5: error: sharing.mps: MPS requires the directory of its daemons on the "
            "host -> set flags.mpsRoot or --mps-root, usually /run/nvidia/mps"
        ),
    ),
    (
        "flags: {mpsRoot: /mps, migStrategy: mixed}\n" + MPS,
        (
            '1:37: error: flags.migStrategy: the strategy "mixed" is not supported with '
            'MPS -> share by timeSlicing, or set migStrategy to "none"'
        ),
    ),
    (
        "flags: {mpsRoot: /mps, migStrategy: single}\n" + MPS,
        (
            "1:37: warning: flags.migStrategy: MPS shares whole GPUs only: MIG instances "
            "of a shared resource are unhealthy -> share by timeSlicing on nodes with "
            "MIG instances"
        ),
    ),
    (
        "flags: {mpsRoot: /mps}\nmps: {root: /other}\n" + MPS,
        ("2:13: error: mps.root: is /other, and flags.mpsRoot is /mps -> keep one of them"),
    ),
    (
        "mps: {root: /mps}\n" + MPS.replace("2}", "99}"),
        (
            "5:29: warning: sharing.mps.resources[0].replicas: a GPU serves at most 48 "
            "MPS clients: further clients do not start"
        ),
    ),
    (
        "mps: {root: /mps}\n" + MPS + "    failRequestsGreaterThanOne: false\n",
        (
            "6:33: warning: sharing.mps.failRequestsGreaterThanOne: has no effect: "
            "with MPS, a container never gets more than one replica"
        ),
    ),
    (
        "mps: {root: /mps}\n" + one("name: gpu, replicas: 2") + MPS.removeprefix("sharing:\n"),
        (
            "7:5: error: sharing.mps: timeSlicing and mps are mutually exclusive: a "
            "device can be shared in only one way -> keep one of them"
        ),
    ),
]


@pytest.mark.parametrize(("text", "line"), MPS_WRONG)
def test_contradiction_with_mps_is_reported(text: str, line: str) -> None:
    """MPS without its root, with MIG or with time slicing is an error or a warning."""
    reading = parsed(text)
    assert lines(reading) == [line]
    assert (reading.configuration is None) == (": error: " in line)


def test_contradiction_by_an_option_names_the_option() -> None:
    overrides = MPS_ROOT | {"flags.migStrategy": Override("mixed", "--mig-strategy")}
    (line,) = lines(read(MPS.encode(), HERE, overrides))
    assert line.startswith('--mig-strategy: error: flags.migStrategy: the strategy "mixed"')


def test_path_of_nvidia_ctk_is_ignored_with_a_warning() -> None:
    """The operator sets it, and gpuhook's CDI specs have another hook."""
    reading = parsed("flags: {plugin: {nvidiaCTKPath: /usr/bin/nvidia-ctk}}")
    assert reading.configuration == Configuration()
    assert lines(reading) == [
        (
            "1:33: warning: flags.plugin.nvidiaCTKPath: nvidia-ctk is ignored: the hook "
            "of gpuhook's CDI specs is gpuhook-hook -> set the path of gpuhook-hook on "
            "the host, or remove the key"
        )
    ]


def test_use_node_feature_api_is_a_warning() -> None:
    (line,) = lines(parsed("flags: {useNodeFeatureAPI: true}"))
    assert "has no effect" in line


def test_anchors_aliases_and_merge_keys_are_read() -> None:
    """Explicit keys take precedence over merged ones."""
    configuration = good(
        """\
        sharing:
          timeSlicing:
            resources:
            - &first {name: gpu, replicas: 4, devices: [0]}
            - {<<: *first, devices: [1]}
            - {<<: [*first, {rename: x}], name: t4}
        """
    )
    assert configuration.sharing.resources == (
        SharedResource("nvidia.com/gpu", 4, None, ("0",)),
        SharedResource("nvidia.com/gpu", 4, None, ("1",)),
        SharedResource("nvidia.com/t4", 4, "nvidia.com/x", ("0",)),
    )
    assert lines(parsed("<<: 1")) == ["1:1: error: << takes a mapping, or a list of mappings"]


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = [
    (BOMB.encode(), 5, "it expands to more than 20000 values"),
    (b"flags: &f {plugin: *f}", 1, "a value contains itself"),
    (b"[" * 200_000, 1, "it is nested too deeply"),
    (b"[" * 40 + b"]" * 40, 1, "it is nested too deeply"),
    (b"{a: " * 50_000, 1, "it is nested too deeply"),
    (b"- " * 100_000, 1, "it is nested too deeply"),
    (b"a: 1\n" * 60_000, 1, "the file is larger than 256 KiB"),
    (b"x" * 10_000_000, 1, "the file is larger than 256 KiB"),
    (b"- a\n" * 30_000, 20_000, "it expands to more than 20000 values"),
    (b"a: *b", 1, "found undefined alias"),
    (b"version: v1\n---\nversion: v1\n", 2, "another document begins here"),
    (b"version: v1\nflags: \xff\n", 2, "the file is not UTF-8 text"),
    (b"version: v1\nflags: \x00\n", 2, "it has a character that YAML does not allow"),
]


@pytest.mark.parametrize("loader", ["C", "Python"])
@pytest.mark.parametrize(("content", "line", "message"), HOSTILE)
def test_hostile_file_is_one_finding(
    content: bytes, line: int, message: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alias bombs, deep nesting and large files, with and without PyYAML's C parser."""
    if loader == "Python":
        import yaml

        for module in (yaml_tree, bounded_yaml):
            monkeypatch.setattr(module, "_Loader", yaml.SafeLoader)
    reading = read(content, HERE)
    (found,) = reading.findings
    assert (found.severity, found.line) == ("error", line)
    assert found.message.startswith(message) or loader == "Python"
    assert reading.configuration is None


@pytest.mark.parametrize(
    "text",
    [
        "version: 2024-01-01",
        "version: !!int ''",
        "version: !!int " + "9" * 5000,
        "version: !!bool maybe",
        "version: !!float x",
        "? [a]\n: b",
        "{? {a: b} : c}",
        "flags: !x {a: b}",
        "1: 2",
        'version: "\\ud800"',
    ],
)
def test_wrong_scalar_is_a_printable_finding(text: str) -> None:
    reading = parsed(text)
    assert reading.findings
    assert all(str(found).isprintable() for found in reading.findings)
    assert "\n".join(lines(reading)).encode()


def test_file_of_errors_takes_bounded_time() -> None:
    unknown = parsed("".join(f"key{number}: 1\n" for number in range(9_000)))
    assert len(unknown.findings) == 9_000
    assert unknown.findings[0].hint
    assert not unknown.findings[-1].hint
    twice = parsed(sharing("resources:\n" + "- {name: gpu, replicas: 2}\n" * 256))
    assert len(twice.findings) == 255
    more = parsed(sharing("resources:\n" + "- {name: gpu, replicas: 2}\n" * 257))
    assert lines(more) == [("4:5: error: sharing.timeSlicing.resources: has more than 256 entries")]


def test_name_of_a_renamed_resource_can_be_used() -> None:
    """All devices with the name must be renamed."""
    naming = "resources: {gpus: [{pattern: 'A*', name: other}, {pattern: '*', name: gpu}]}\n"
    good(
        naming
        + sharing(
            "resources:\n- {name: gpu, rename: other, replicas: 2}\n"
            "- {name: other, rename: x, replicas: 2}\n"
        )
    )


def test_null_mps_is_absent() -> None:
    """NVIDIA's plugin also ignores null values of mps and timeSlicing."""
    configuration = good(sharing("resources: [{name: gpu, replicas: 2}]\n") + "  mps:\n")
    assert configuration.sharing.strategy == "time-slicing"
    empty = parsed("sharing: {timeSlicing: null}")
    assert [found.message for found in empty.findings] == ["is missing"]
