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
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.hot.host_fingerprint import TEGRA_RELEASE, fingerprint
from gpuhook.vendors.nvidia.inventory.inventory import Driver, DriverFile, Node
from gpuhook.vendors.nvidia.modes.tegra import csv_files, soc, tegra_devices
from gpuhook.vendors.nvidia.modes.tegra.tegra_files import Search, TegraFiles
from gpuhook.vendors.nvidia.spec import driver_edits, gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits, Device
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.modes.tegra.soc import Soc
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

_ORIN_COMPAT = "/usr/local/cuda/compat_orin"


def describe(where: Roots, choices: Choices) -> Described:
    """Return the spec of a Tegra system.

    Raises GH1220 without its files, GH1221 for a named one that is not readable, GH1222 if none of
    its device nodes exists, GH1515 for a relative directory, GH1511 for an unknown id, GH1243 to
    GH1245 for broken rules of the site.
    """
    if choices.csv_compat_root and not choices.csv_compat_root.startswith("/"):
        raise fault("GH1515", what="--csv-compat-container-root", path=choices.csv_compat_root)
    paths, others = _paths(where, choices)
    lines, unread = _lines(paths)
    more, others_unread = _lines(others)
    search = Search(where, choices.csv_ignore_patterns)
    found, further = search.of(lines), search.of(more)
    _add_release(found, where)
    chip = soc.ask(where)
    own, left_out = tegra_devices.tegra_devices(chip, found.nodes, search, choices)
    if not own:
        files = ", ".join(path for path in paths if not path.endswith("/drivers.csv"))
        raise fault("GH1222", files=files, reasons="".join("; " + line for line in left_out))
    own = tegra_devices.chosen(own, choices.device_ids)
    edits_of = _EditsOf(where, choices, chip, _witness(found))
    absent = _apply_site_rules(found, further, where)
    common, missing = edits_of(found)
    devices = gpu_spec.devices([(gpu, None, nodes) for gpu, nodes in own], choices)
    devices += _further(further.without(found), edits_of, choices)
    warnings = (
        *unread,
        *others_unread,
        *left_out,
        *found.warnings,
        *further.warnings,
        *absent,
        *missing,
    )
    gpus = tuple(gpu for gpu, _ in own)
    return Described(gpu_spec.of_parts(choices.kind, devices, common), gpus, warnings)


def _paths(where: Roots, choices: Choices) -> tuple[list[str], list[str]]:
    """Return (host paths of the files for every container, of those on request)."""
    if choices.csv_files:
        return list(choices.csv_files), []
    root = DriverRoot(where.driver)
    names = [name for name in root.names(csv_files.DIRECTORY) if name.endswith(".csv")]
    paths = {name: root.real(f"{csv_files.DIRECTORY}/{name}") for name in names}
    hosts = {name: root.host(path) for name, path in paths.items() if path}
    applying = [hosts[name] for name in csv_files.NAMES if name in hosts]
    if not applying:
        raise fault("GH1220", directory=root.host(csv_files.DIRECTORY))
    return applying, [path for name, path in hosts.items() if name not in csv_files.NAMES]


def _lines(paths: list[str]) -> tuple[list[csv_files.Line], list[str]]:
    """Return (the lines of all files, sentences about what is skipped); raises GH1221."""
    found: list[csv_files.Line] = []
    warnings: list[str] = []
    for path in paths:
        try:
            lines, wrong = csv_files.read(path)
        except OSError as error:
            raise fault("GH1221", path=path, reason=error.strerror or error) from error
        found += lines
        warnings += wrong
        if not lines:
            warnings.append(f"{path} has no entries")
    return list(dict.fromkeys(found)), warnings


def _add_release(found: TegraFiles, where: Roots) -> None:
    """Add the file by which programs recognise a Tegra; it may be in the host's root only."""
    for path in (where.driver, where.host):
        root = DriverRoot(path)
        real = root.real(TEGRA_RELEASE)
        if real and TEGRA_RELEASE not in found.files:
            found.files[TEGRA_RELEASE] = DriverFile("config", root.host(real), TEGRA_RELEASE)


def _apply_site_rules(found: TegraFiles, further: TegraFiles, where: Roots) -> list[str]:
    """Apply the site's rules; return warnings about files that could not be added."""
    rules = site_rules.read(where.files_dir)
    messages: list[str] = []
    for part, changes in ((found, rules), (further, replace(rules, add=()))):
        files, links, warnings = site_files.changed(
            changes, DriverRoot(where.driver), part.files.values(), part.links.values()
        )
        part.files = {file.container_path: file for file in files}
        part.links = {link.path: link for link in links}
        messages += warnings
    return messages


def _witness(found: TegraFiles) -> str:
    """Return the host path of libcuda, which changes with the driver, "" without one."""
    paths = (file.host_path for file in found.files.values() if file.soname == "libcuda.so.1")
    return next(paths, "")


@dataclass(frozen=True, slots=True)
class _EditsOf:
    """The function that returns the edits for files and links, and sentences about missing parts.

    `witness` is the host path of libcuda.
    """

    where: Roots
    choices: Choices
    chip: Soc
    witness: str

    def __call__(self, found: TegraFiles) -> tuple[ContainerEdits, list[str]]:
        node = Node(
            driver=Driver(version=self.chip.driver or None),
            files=tuple(found.files.values()),
            links=tuple(found.links.values()),
            fingerprint=fingerprint(self.where.host, self.witness),
        )
        return driver_edits.common(node, self.choices, adjust=self._adjust)

    def _adjust(self, job: Jobs) -> None:
        job.whole = True
        job.libcuda = self.witness
        job.cuda_version = self.chip.cuda
        if job.cuda_compat:
            default = _ORIN_COMPAT if self.chip.is_orin else driver_edits.COMPAT_DIRECTORY
            job.cuda_compat = self.choices.csv_compat_root or default


def _further(found: TegraFiles, edits_of: _EditsOf, choices: Choices) -> list[Device]:
    """Return the device with the entries of the other files, [] if there are none."""
    if not (found.nodes or found.files or found.links):
        return []
    edits, _ = edits_of(found)
    edits.pop("env", None)  # the spec has it
    if found.nodes:
        edits.update(driver_edits.node_edits(found.nodes.values(), choices))
    return [{"name": vocabulary.CSV_DEVICE, "containerEdits": edits}]
