# SPDX-License-Identifier: Apache-2.0
"""What commands print about nodes: documents, tables, CDI specs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from gpuhook.vendors.amd.labels.amd_labels import KINDS
from tests.record.box import Box
from tests.record.case import Case
from tests.record.groups import document_files
from tests.record.groups.create_requests import FIRST

# Placeholders: the node's roots, or the driver's only.
NODE, DRIVER = "{node}", "{driver}"
LAYOUTS = ("t4-debian", "t4-lib64", "t4-container", "t4-gke")
PROFILES = ("t4", "h100x8", "lost-gpu", "a100-mig")
Prepared = Callable[[Box], None] | None
FOUND: list[Case] = []


def case(
    name: str, *calls: str, scene: str = "h100", before: Prepared = None, is_altering: bool = False
) -> None:
    """Add a case of command lines, whose words are separated by spaces."""
    action = partial(_run, calls, before)
    FOUND.append(Case("documents", name, scene, action, is_altering=is_altering))


def _run(calls: tuple[str, ...], before: Prepared, box: Box) -> None:
    if before is not None:
        before(box)
    for call in calls:
        box.gpuhook(*words(box, call))


def words(box: Box, call: str) -> list[str]:
    """Return the words of a command line for the node of a case."""
    known = {NODE: box.options, DRIVER: box.options[:1]}
    return [one for word in call.split(" ") for one in known.get(word, [word])]


def cases() -> list[Case]:
    """Return all cases."""
    if not FOUND:
        for add in (_inventories, _specs, _cdi, _explained, _settings, _doctors, _usage, _plugin):
            add()
    return FOUND


def _inventories() -> None:
    for scene in ("h100", "mig", "lost"):
        for form in ("table", "json", "yaml", "name"):
            case(f"inventory-{scene}-{form}", f"inventory {NODE} -o {form}", scene=scene)
    for scene in (*LAYOUTS, "empty", "tegra", "wsl"):
        case(f"inventory-{scene}", f"inventory {NODE} -o yaml", scene=scene)
    for profile in PROFILES:
        for form in ("table", "json"):
            case(
                f"inventory-profile-{profile}-{form}", f"inventory --inventory {profile} -o {form}"
            )
    case("inventory-no-headers", f"inventory {NODE} --no-headers")
    case("inventory-debug", "inventory --inventory h100x8 --debug")
    case("inventory-quiet", f"inventory {NODE} -q", scene="lost")
    case("inventory-search-path", f"inventory {NODE} --library-search-path /usr/lib/none")
    for scene in ("h100", "mig", "lost", "empty"):
        case(f"labels-{scene}", f"labels {NODE} --oneshot --no-timestamp=true", scene=scene)
    for profile in PROFILES:
        case(
            f"labels-profile-{profile}",
            f"labels --inventory {profile} --oneshot --no-timestamp=true",
        )
    for profile in ("mi300x8", "mi300x-cpx", "mixed", "radeon"):
        every = "" if profile != "mi300x8" else f" --device-labels={','.join(KINDS)}"
        case(
            f"labels-profile-{profile}",
            f"labels --inventory {profile} --oneshot --no-timestamp=true{every}",
        )
    case(
        "labels-mig-strategies",
        *(
            f"labels --inventory a100-mig --oneshot --no-timestamp=true --mig-strategy={strategy}"
            for strategy in ("none", "single", "mixed")
        ),
    )
    case(
        "labels-file",
        "labels --inventory t4 --oneshot --no-timestamp=true --output-file /mnt/case/labels",
    )
    case(
        "labels-sharing",
        "labels --inventory t4 --oneshot --no-timestamp=true --config-file /mnt/case/plugin.yaml",
        before=_writes("plugin.yaml", document_files.PLUGIN),
    )
    case("labels-json", "labels --inventory t4 --oneshot --no-timestamp=true -o json")


def _specs() -> None:
    case("generate-flat-small", f"generate-cdi {NODE}")
    for scene in ("t4", *LAYOUTS, "mig", "lost", "tegra", "wsl", "empty"):
        case(f"generate-{scene}", f"generate-cdi {NODE}", scene=scene)
    for profile in PROFILES:
        case(f"generate-profile-{profile}", f"generate-cdi --inventory {profile}")
    options = {
        "json": "--format json",
        "hookless": "--hooks none",
        "hook-path": "--hook-path /opt/bin/gpuhook-hook",
        "names-index": "--device-name-strategy index",
        "names-uuid": "--device-name-strategy uuid",
        "names-type-index": "--device-name-strategy type-index",
        "names-two": "--device-name-strategy index --device-name-strategy uuid",
        "no-all": "--no-all-device",
        "vendor": "--vendor example.com --class card",
        "device-id": "--device-id 2",
        "device-id-uuid": f"--device-id {FIRST}",
        "device-id-two": "--device-id 0 --device-id 3",
        "device-id-unknown": "--device-id 9",
        "device-id-none": "--device-id none",
        "capabilities": "--driver-capabilities utility",
        "capabilities-unknown": "--driver-capabilities nothing",
        "feature": "--feature-flag enable-explicit-driver-libraries",
        "feature-unknown": "--feature-flag x",
        "disable-hook": "--disable-hook enable-cuda-compat",
        "disable-hook-cache": "--disable-hook update-ldcache",
        "disable-hook-all": "--disable-hook all",
        "disable-hook-unknown": "--disable-hook x",
        "enable-hook": "--disable-hook all --enable-hook create-symlinks",
        "ldconfig": "--ldconfig-path /sbin/ldconfig",
        "mode-nvml": "--mode nvml",
        "mode-proc": "--mode proc",
        "mode-management": "--mode management",
        "mode-csv": "--mode csv",
        "mode-wsl": "--mode wsl",
        "mode-gds": "--mode gds",
        "mode-mofed": "--mode mofed",
        "mode-gdrcopy": "--mode gdrcopy",
        "mode-nvswitch": "--mode nvswitch",
        "mode-imex": "--mode imex",
        "mode-mig": "--mode mig",
        "mode-unknown": "--mode x",
        "output": "--output /mnt/case/out/spec.yaml",
        "output-json": "--output /mnt/case/out.json",
        "output-suffix": "--output /mnt/case/out.txt",
        "output-directory": "--output /mnt/case",
        "debug": "--debug --output /mnt/case/out.yaml",
    }
    for name, option in options.items():
        case(f"generate-option-{name}", f"generate-cdi {NODE} {option}")
    for name in ("mode-mig", "names-uuid", "names-type-index", "device-id", "mode-management"):
        case(f"generate-mig-{name}", f"generate-cdi {NODE} {options[name]}", scene="mig")
    case("generate-device-nodes", f"generate-cdi {NODE} --create-device-nodes", is_altering=True)
    case("refresh", "refresh", "refresh --dry-run", "refresh -o json", "refresh --force -o json")
    case("refresh-dry", "refresh --dry-run -o json", scene="mig")
    case("refresh-stale", "refresh --dry-run", "refresh", before=_another_boot, is_altering=True)
    case("refresh-stale-json", "refresh -o json", before=_another_boot, is_altering=True)
    case("refresh-nothing", "refresh", "refresh -o json", scene="empty")
    for target in (
        "create-device-nodes --control-devices",
        "create-dev-char-symlinks --create-all",
    ):
        name = target.partition(" ")[0]
        for form in ("table", "json"):
            case(f"system-{name}-{form}", f"system {target} --dry-run {NODE} -o {form}")
    case("system-load-kernel-modules", f"system load-kernel-modules --dry-run {DRIVER} -o json")


def _another_boot(box: Box) -> None:
    box.write(f"{box.node}/proc/sys/kernel/random/boot_id", "another\n")


def _writes(path: str, text: str) -> Prepared:
    def write(box: Box) -> None:
        box.write(path, text)

    return write


def _cdi() -> None:
    for form in ("table", "json", "yaml", "name"):
        case(f"cdi-list-{form}", f"cdi list -o {form}")
    case("cdi-list-mig", "cdi list", "cdi list --no-headers", scene="mig")
    case("cdi-list-empty", "cdi list", "cdi list -o json", scene="empty")
    case("cdi-list-foreign", "cdi list", "cdi list -o json", before=_foreign)
    case("cdi-list-missing", "cdi list --spec-dir /nowhere")
    case("cdi-show-text", "cdi show nvidia.com/gpu=0", "cdi show nvidia.com/gpu=all -o json")
    for form in ("text", "json", "yaml"):
        case(f"cdi-validate-{form}", f"cdi validate -o {form}")
        case(f"cdi-validate-foreign-{form}", f"cdi validate -o {form}", before=_foreign)
    case("cdi-show-yaml", "cdi show nvidia.com/gpu=0 -o yaml", "cdi show cdi/nvidia.yaml -o json")
    case("cdi-show-short", "cdi show 0", "cdi show all", f"cdi show {FIRST}")
    case("cdi-show-unknown", "cdi show nvidia.com/gpu=9", "cdi show x/y=z", "cdi show")
    case("cdi-show-foreign", "cdi show example.com/net=eth0", before=_foreign)
    case("cdi-show-kind", "cdi show nvidia.com/gpu")
    for form in ("table", "json", "yaml"):
        case(f"cdi-resolve-{form}", f"cdi resolve nvidia.com/gpu=0 nvidia.com/gpu=1 -o {form}")
    case("cdi-resolve-all", "cdi resolve nvidia.com/gpu=all")
    case("cdi-resolve-unknown", "cdi resolve nvidia.com/gpu=9")
    case("cdi-resolve-foreign", "cdi resolve example.com/net=eth0 0", before=_foreign)
    case("cdi-resolve-oci", "cdi resolve 0 --oci config.json", before=_bundle)
    case("cdi-resolve-oci-missing", "cdi resolve 0 --oci nowhere.json")
    case("cdi-validate-host", "cdi validate --host cdi/nvidia.yaml", "cdi validate --no-host")
    broken = _writes("broken.yaml", "cdiVersion: 0.3.0\nkind: a\ndevices: []\nmore: 1\n")
    case("cdi-validate-broken", "cdi validate broken.yaml", "cdi validate x.yaml", before=broken)
    case("cdi-validate-broken-json", "cdi validate broken.yaml -o json", before=broken)
    spec = "--input cdi/nvidia.yaml"
    case("cdi-root", f"cdi transform root --from /mnt/node/h100 --to / {spec}")
    case("cdi-root-json", f"cdi transform root --from /mnt/node/h100 --to /x {spec} --format json")
    case(
        "cdi-root-container",
        f"cdi transform root --from /usr/lib --to /opt --relative-to container {spec}",
    )
    case("cdi-root-output", f"cdi transform root --from /mnt --to /x {spec} --output out.json")
    case("cdi-root-missing", "cdi transform root --from /a --to /b --input nowhere")
    case(
        "cdi-driver",
        "cdi transform driver --driver-root /mnt/node/h100 --target-driver-root / --input"
        " cdi/nvidia.yaml",
    )


def _foreign(box: Box) -> None:
    for name, document in document_files.SPECS.items():
        box.write(f"cdi/{name}", document)


def _bundle(box: Box) -> None:
    box.write("config.json", json.dumps(document_files.CONFIG))
    for name, text in document_files.WORKLOADS.items():
        box.write(name, text)


def _explained() -> None:
    zero = "--env NVIDIA_VISIBLE_DEVICES=0"
    further = {
        "gpu": "--inventory mi300x8 --env AMD_VISIBLE_DEVICES=0",
        "partition": "--inventory mi300x-cpx --env AMD_VISIBLE_DEVICES=0:1",
        "backwards": "--inventory mi300x8 --env AMD_VISIBLE_DEVICES=3-1",
        "mixed": f"--inventory mixed --env AMD_VISIBLE_DEVICES=1 {zero}",
        "none": "--inventory mi300x8 --env A=B",
    }
    for name, words_of_case in further.items():
        case(f"explain-amd-{name}", f"explain {words_of_case}")
    case("explain-amd-node", "explain --env AMD_VISIBLE_DEVICES=all", scene="amd")
    for form in ("text", "wide", "json", "yaml"):
        case(f"explain-env-{form}", f"explain {zero} -o {form}")
        case(f"explain-config-{form}", f"explain config.json -o {form}", before=_bundle)
        case(f"explain-pod-{form}", f"explain pod.yaml -o {form}", before=_bundle)
    calls = {
        "all": "--env NVIDIA_VISIBLE_DEVICES=all",
        "none": "--env NVIDIA_VISIBLE_DEVICES=none",
        "void": "--env NVIDIA_VISIBLE_DEVICES=void",
        "unknown": "--env NVIDIA_VISIBLE_DEVICES=9",
        "replica": f"--env NVIDIA_VISIBLE_DEVICES={FIRST}::1",
        "capabilities": f"{zero} --env NVIDIA_DRIVER_CAPABILITIES=all",
        "capabilities-bad": f"{zero} --env NVIDIA_DRIVER_CAPABILITIES=x",
        "require": f"{zero} --env NVIDIA_REQUIRE_CUDA=cuda>=12.4",
        "require-unmet": f"{zero} --env NVIDIA_REQUIRE_CUDA=cuda>=15",
        "memory": f"{zero} --env NVIDIA_GPU_MEMORY_LIMIT=4096",
        "extras": f"{zero} --env NVIDIA_GDS=enabled",
        "image-of-old": "--env CUDA_VERSION=12.1",
        "annotation": "--annotation cdi.k8s.io/x=nvidia.com/gpu=1",
        "annotation-and-env": f"--annotation cdi.k8s.io/x=nvidia.com/gpu=1 {zero}",
        "mount": "--mount /var/run/nvidia-container-devices/0",
        "privileged": f"--privileged {zero}",
        "diff": f"{zero} --diff",
        "dot": f"{zero} --dot",
        "nothing": "--env A=B",
        "no-words": "",
        "bad-env": "--env NVIDIA_VISIBLE_DEVICES",
        "missing": "nowhere.json",
        "inventory": f"--inventory t4 {zero}",
        "inventory-mig": "--inventory a100-mig --env NVIDIA_VISIBLE_DEVICES=0:0",
        "inventory-lost": "--inventory lost-gpu --env NVIDIA_VISIBLE_DEVICES=2",
    }
    for name, options in calls.items():
        case(f"explain-{name}", f"explain {options}".rstrip())
        if name in ("unknown", "require", "memory", "annotation", "mount", "inventory-mig"):
            case(f"explain-{name}-json", f"explain {options} -o json")
    case("explain-mig", "explain --env NVIDIA_VISIBLE_DEVICES=0:0", scene="mig")
    case("explain-lost", "explain --env NVIDIA_VISIBLE_DEVICES=all", scene="lost")
    case("explain-no-spec", f"explain {NODE} {zero}", scene="h100-nospec")
    case("explain-no-driver", f"explain {zero}", f"explain {NODE} {zero}", scene="empty")
    case("explain-stale", f"explain {zero}", before=_another_boot, is_altering=True)
    for name in document_files.WORKLOADS:
        case(f"explain-file-{name.replace('.', '-')}", f"explain {name}", before=_bundle)
    case(
        "explain-plugin-config",
        "explain pod.yaml --plugin-config plugin.yaml --inventory t4",
        before=_both,
    )
    for code in ("GH1102", "gh1120", "GH1001", "GH9999", "GH1491", "GH1530", "GH1200"):
        case(f"explain-code-{code}", f"explain {code}", f"explain {code} -o json")


def _both(box: Box) -> None:
    _bundle(box)
    box.write("plugin.yaml", document_files.PLUGIN)


def _settings() -> None:
    for form in ("yaml", "json"):
        case(f"config-show-{form}", f"config show -o {form}", f"config show --origin -o {form}")
    case("config-default", "config default")
    case("config-path", "config path")
    case("config-validate", "config validate config.yaml", "config validate nowhere.yaml")
    for name, text in document_files.SETTINGS.items():
        case(
            f"config-validate-{name}",
            "config validate new.yaml",
            "config show --origin",
            before=partial(_new_settings, text),
        )
    for name, text in document_files.TOOLKIT.items():
        case(
            f"config-import-{name}",
            "config import config.toml",
            "config import config.toml --output made.yaml",
            before=_writes("config.toml", text),
        )
    for name, text in document_files.POLICIES.items():
        case(
            f"config-clusterpolicy-{name}",
            "config from-clusterpolicy policy.yaml",
            before=_writes("policy.yaml", text),
        )
    for shell in ("bash", "zsh", "fish", "csh"):
        case(f"completion-{shell}", f"completion {shell}")


def _new_settings(text: str, box: Box) -> None:
    box.write("new.yaml", text)
    box.env["GPUHOOK_CONFIG"] = "/mnt/case/new.yaml"


def _doctors() -> None:
    case("doctor-list", "doctor --list", "doctor --list -o json")
    for scene in ("h100", "t4-container", "mig", "lost", "tegra", "wsl", "amd", "empty"):
        for form in ("table", "wide", "json", "name"):
            case(
                f"doctor-{scene}-{form}", f"doctor --root /mnt/node/{scene} -o {form}", scene=scene
            )
    for name, files in document_files.NODES.items():
        case(
            f"doctor-files-{name}",
            "doctor --root /mnt/node/h100",
            before=partial(_node_files, files),
            is_altering=True,
        )
    case("doctor-checks", "doctor --root /mnt/node/h100 --checks driver")
    case("doctor-checks-unknown", "doctor --root /mnt/node/h100 --checks x")
    case("doctor-no-node", "doctor --root /mnt/tmp")
    case("doctor-stale", "doctor --root /mnt/node/h100", before=_another_boot, is_altering=True)
    for form in ("text", "table", "json", "name"):
        case(
            f"support-bundle-{form}",
            f"support-bundle --root /mnt/node/h100 --no-logs -f /mnt/tmp/b.tar.gz -o {form}",
        )
    case(
        "support-bundle-doctor",
        "support-bundle --root /mnt/node/h100 --no-logs -f /mnt/tmp/b.tar.gz -o name",
        "doctor --from /mnt/tmp/b.tar.gz",
    )
    case("doctor-from-missing", "doctor --from /nowhere.tar.gz")


def _node_files(files: dict[str, str], box: Box) -> None:
    for path, text in files.items():
        box.write(f"{box.node}{path}", text)


def _usage() -> None:
    for form in ("table", "wide", "json", "yaml", "name"):
        case(f"ps-{form}", f"ps --recorded -o {form}", before=_containers)
    case("ps-none", "ps --recorded", "ps --recorded -o json")
    case("ps-isolation", "ps --recorded --isolation", before=_containers)
    case("ps-isolation-json", "ps --recorded --isolation -o json", before=_containers)
    case("ps-no-headers", "ps --recorded --no-headers", before=_containers)
    case("ps-odd", "ps --recorded", "ps --recorded -o json", before=_odd_containers)
    for form in ("table", "json"):
        case(f"limits-show-{form}", f"limits show {DRIVER} -o {form}", before=_containers)
    case("ps-driver", f"ps {DRIVER}", f"ps {DRIVER} -o json", before=_containers)
    case("map-driver", f"map {DRIVER} --width 100", before=_containers)
    case("map-no-nvml", f"map {DRIVER} --no-nvml --width 100", before=_containers)
    case("map-driver-mig", f"map {DRIVER} --width 100", scene="mig")
    case("limits-none", f"limits show {DRIVER}", f"limits show {DRIVER} -o json")
    for profile in PROFILES:
        case(f"map-{profile}", f"map --inventory {profile} --width 90")
    case("map-ascii", "map --inventory h100x8 --ascii --width 60")
    case("map-svg", "map --inventory a100-mig --svg -")
    case("map-html", "map --inventory t4 --html -")
    case("map-narrow", "map --inventory t4 --width 10")
    case("health", "health show", "health show -o json", "health clear x")


def _containers(box: Box) -> None:
    for identity, entry in document_files.ENTRIES.items():
        box.directory(f"/run/runc/{identity}")
        box.write(f"state/containers/{entry[0]}-{identity}.json", json.dumps(entry[1]))


def _odd_containers(box: Box) -> None:
    _containers(box)
    box.write("state/containers/x.json", "{")
    box.write("state/containers/y.json", '{"schema":"gpuhook/ledger/v9"}')
    box.write("state/containers/z.json", '{"schema":"gpuhook/ledger/v1","id":5,"root":[]}')
    box.write("state/containers/writable.json", "{}", 0o666)


def _plugin() -> None:
    case("plugin-schema", "device-plugin --print-schema")
    case("plugin-config", "device-plugin --print-config", "device-plugin --print-config -o json")
    for name, text in document_files.PLUGINS.items():
        config = "--config-file plugin.yaml"
        case(
            f"plugin-{name}",
            "device-plugin --validate plugin.yaml",
            f"device-plugin {config} --print-config",
            before=_writes("plugin.yaml", text),
        )
    case("plugin-validate-missing", "device-plugin --validate nowhere.yaml")
    case("plugin-wrong", "device-plugin --mig-strategy=some --print-config")
