# SPDX-License-Identifier: Apache-2.0
"""Mode csv: a Tegra system, whose CSV files list the files and nodes for containers.

Three files of the directory apply to every container: devices.csv, drivers.csv and l4t.csv. The
entries of the others are the device `csv-mounts-all` of the same spec: the wrapper adds it for
containers with NVIDIA_REQUIRE_JETPACK=csv-mounts=all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.driver import site_files, site_rules
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.driver_root import DriverRoot
from gpuhook.vendors.nvidia.hot.host_fingerprint import TEGRA_RELEASE, fingerprint
from gpuhook.vendors.nvidia.hot.rootfs import hook_args
from gpuhook.vendors.nvidia.inventory.inventory import Driver, DriverFile, Node
from gpuhook.vendors.nvidia.modes.tegra import csv_files, soc, tegra_devices
from gpuhook.vendors.nvidia.modes.tegra.tegra_files import Search, TegraFiles
from gpuhook.vendors.nvidia.spec import device_selection, driver_edits, gpu_spec, node_edits
from gpuhook.vendors.nvidia.spec.generate_options import Described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device, Hook
    from gpuhook.vendors.nvidia.modes.tegra.soc import Soc
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, ModeRoots

_ORIN_COMPAT = "/usr/local/cuda/compat_orin"


def describe(place: ModeRoots, choices: Choices) -> Described:
    """Return the spec of a Tegra system.

    Raises GH1220 without its files, GH1221 for a named one that is not readable, GH1222 if none of
    its device nodes exists, GH1515 for a relative directory, GH1511 for an unknown id, GH1243 to
    GH1245 for broken rules of the site.
    """
    if place.csv_compat_root and not place.csv_compat_root.startswith("/"):
        raise fault("GH1515", what="--csv-compat-container-root", path=place.csv_compat_root)
    paths, others = _paths(place)
    read = _Reading()
    lines, more = read.lines(paths), read.lines(others)
    search = Search(
        place.roots.driver,
        place.roots.dev,
        search_paths=place.library_search_paths,
        ignored=place.csv_ignore_patterns,
    )
    found, further = search.of(lines), search.of(more)
    _add_release(found, place)
    chip = soc.ask(place)
    if choices.multiple_csv_devices:
        own, left_out = tegra_devices.tegra_devices(chip, found.nodes, search)
    else:
        own, left_out = tegra_devices.only(chip, found.nodes), []
    if not own:
        files = ", ".join(path for path in paths if not path.endswith("/drivers.csv"))
        raise fault("GH1222", files=files, reasons="".join("; " + line for line in left_out))
    own = tegra_devices.chosen(own, choices.device_ids)
    described = _Description(place, choices, chip, _witness(found))
    absent = _apply_site_rules(found, further, place)
    common, missing = described.common(found)
    named = [*_devices(own, choices), *described.further(further.without(found))]
    warnings = (
        *read.warnings,
        *left_out,
        *found.warnings,
        *further.warnings,
        *absent,
        *missing,
    )
    gpus = tuple(gpu for gpu, _ in own)
    return Described(gpu_spec.of_parts(choices.kind, named, common), gpus, warnings)


def _paths(place: ModeRoots) -> tuple[list[str], list[str]]:
    """Return (host paths of the files for every container, of those on request)."""
    if place.csv_files:
        return list(place.csv_files), []
    root = DriverRoot(place.roots.driver)
    names = [name for name in root.names(csv_files.DIRECTORY) if name.endswith(".csv")]
    paths = {name: root.real(f"{csv_files.DIRECTORY}/{name}") for name in names}
    hosts = {name: root.host(path) for name, path in paths.items() if path}
    applying = [hosts[name] for name in csv_files.NAMES if name in hosts]
    if not applying:
        raise fault("GH1220", directory=root.host(csv_files.DIRECTORY))
    return applying, [path for name, path in hosts.items() if name not in csv_files.NAMES]


class _Reading:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def lines(self, paths: list[str]) -> list[csv_files.Line]:
        found: list[csv_files.Line] = []
        for path in paths:
            try:
                lines, wrong = csv_files.read(path)
            except OSError as error:
                raise fault("GH1221", path=path, reason=error.strerror or error) from error
            found += lines
            self.warnings += wrong
            if not lines:
                self.warnings.append(f"{path} has no entries")
        return list(dict.fromkeys(found))


def _add_release(found: TegraFiles, place: ModeRoots) -> None:
    """Add the file by which programs recognise a Tegra; it may be in the host's root only."""
    for path in (place.roots.driver, place.roots.host):
        root = DriverRoot(path)
        real = root.real(TEGRA_RELEASE)
        if real and TEGRA_RELEASE not in found.files:
            found.files[TEGRA_RELEASE] = DriverFile("config", root.host(real), TEGRA_RELEASE)


def _apply_site_rules(found: TegraFiles, further: TegraFiles, place: ModeRoots) -> list[str]:
    """Apply the site's rules; return warnings about files that could not be added."""
    rules = site_rules.read(place.files_dir)
    messages: list[str] = []
    for part, changes in ((found, rules), (further, replace(rules, add=()))):
        files, links, warnings = site_files.changed(
            changes, DriverRoot(place.roots.driver), part.files.values(), part.links.values()
        )
        part.files = {file.container_path: file for file in files}
        part.links = {link.path: link for link in links}
        messages += warnings
    return messages


def _witness(found: TegraFiles) -> str:
    """Return the host path of libcuda, which changes with the driver, "" without one."""
    paths = (file.host_path for file in found.files.values() if file.soname == "libcuda.so.1")
    return next(paths, "")


def _devices(own: tegra_devices.Own, choices: Choices) -> list[Device]:
    gids = choices.additional_gids
    made: list[Device] = [
        {"name": name, "containerEdits": node_edits.node_edits(nodes, additional_gids=gids)}
        for strategy in dict.fromkeys(choices.strategies)
        for gpu, nodes in own
        for name in device_selection.names(gpu, (strategy,))
    ]
    if choices.with_all:
        every = {node.path: node for _, nodes in own for node in nodes}
        edits = node_edits.node_edits([*every.values()], additional_gids=gids)
        made.append({"name": device_selection.EVERY, "containerEdits": edits})
    return made


@dataclass(frozen=True, slots=True)
class _Description:
    place: ModeRoots
    choices: Choices
    chip: Soc
    witness: str

    def common(self, found: TegraFiles) -> tuple[ContainerEdits, list[str]]:
        """Return the edits that give a container the files and links in `found`."""
        node = Node(
            driver=Driver(version=self.chip.driver or None),
            files=tuple(found.files.values()),
            links=tuple(found.links.values()),
            fingerprint=fingerprint(self.place.roots.host, self.witness),
        )
        edits, missing = driver_edits.common(node, self.choices)
        edits["hooks"] = [self._hook(hook) for hook in edits.get("hooks") or ()]
        if not edits["hooks"]:
            del edits["hooks"]
        return edits, missing

    def further(self, found: TegraFiles) -> list[Device]:
        """Return the device with the entries of the other files, [] if there are none."""
        if not (found.nodes or found.files or found.links):
            return []
        edits, _ = self.common(found)
        edits.pop("env", None)  # the spec has it
        if found.nodes:
            gids = self.choices.additional_gids
            edits.update(node_edits.node_edits([*found.nodes.values()], additional_gids=gids))
        return [{"name": vocabulary.CSV_DEVICE, "containerEdits": edits}]

    def _hook(self, hook: Hook) -> Hook:
        job = hook_args.of_hook(hook)
        job.whole = True
        job.libcuda = self.witness
        job.cuda_version = self.chip.cuda
        if job.cuda_compat:
            default = _ORIN_COMPAT if self.chip.is_orin else driver_edits.COMPAT_DIRECTORY
            job.cuda_compat = self.place.csv_compat_root or default
        return job.hook()
