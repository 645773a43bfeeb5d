# SPDX-License-Identifier: Apache-2.0
"""What of a policy has no counterpart among gpuhook's values, and why."""

from __future__ import annotations

_MACHINES = "virtual machines with GPUs are not gpuhook's: keep the operator for those nodes"
# Sections of which there is something to say unless they are switched off.
WHERE_ENABLED = {
    "ccManager": _MACHINES,
    "dcgm": "NVIDIA's DCGM stays what it is; gpuhook does not start it",
    "dcgmExporter": "gpuhook's plugin has metrics of its own (metrics.enabled); DCGM's are others",
    "fabricManager": "it is the driver's: keep what starts it",
    "kataManager": _MACHINES,
    "kataSandboxDevicePlugin": _MACHINES,
    "migManager": "gpuhook offers MIG instances and makes none: keep what makes them",
    "nfd": "Node Feature Discovery is a chart of its own; gfd.labelNode does without it",
    "nodeStatusExporter": "gpuhook's metrics tell of the plugin; `gpuhook doctor` checks a node",
    "sandboxDevicePlugin": _MACHINES,
    "sandboxWorkloads": _MACHINES,
    "vfioManager": _MACHINES,
    "vgpuDeviceManager": _MACHINES,
    "vgpuManager": _MACHINES,
}
NOT_HERE = "gpuhook has no such value"
# Sections of the values of NVIDIA's other chart, the device plugin's: gpuhook's has their names.
OF_THE_PLUGINS_CHART = "is a value of the device plugin's chart: copy it, gpuhook's has it, too"
PLUGINS_CHART = frozenset(
    (
        "affinity", "compatWithCPUManager", "config", "deviceDiscoveryStrategy", "deviceIDStrategy",
        "deviceListStrategy", "failOnInitError", "gdrcopyEnabled", "gdsEnabled", "image",
        "imagePullSecrets", "migStrategy", "mofedEnabled", "nodeSelector", "nvidiaDriverRoot",
        "podAnnotations", "podSecurityContext", "priorityClassName", "resources",
        "runtimeClassName", "securityContext", "tolerations", "updateStrategy",
    )
)  # fmt: skip
# Sections and keys of which there is something to say anyhow.
ANYWAY = {
    "cdi.nriPluginEnabled": "gpuhook has no NRI plugin: its runtime applies the specs",
    "devicePlugin.kataPluginSpec": _MACHINES,
    "driver.useNvidiaDriverCRD": "gpuhook installs no driver: the operator keeps its NVIDIADriver",
    "hostPaths.rootFS": "gpuhook takes / for the node's root, and has no value for another",
    "node-feature-discovery": (
        "Node Feature Discovery is a chart of its own; which nodes get gpuhook is said in affinity"
    ),
    "platform": "gpuhook has no other way on this platform",
    "psa": "label the namespace: pod-security.kubernetes.io/enforce=privileged",
    "psp": "Kubernetes has no pod security policies any more",
    "validator": "`gpuhook doctor` checks a node",
}
_OF_IMAGES = ("image", "imagePullPolicy", "imagePullSecrets", "repository", "version")
_OF_DRIVERS = (
    "certConfig", "env", "kernelModuleConfig", "kernelModuleType", "licensingConfig", "manager",
    "nvidiaDriverCRD", "repoConfig", "resources", "startupProbe", "upgradePolicy",
    "useOpenKernelModules", "usePrecompiled", "virtualTopology", *_OF_IMAGES,
)  # fmt: skip
_OF_THE_OPERATOR = (
    "affinity", "annotations", "cleanupCRD", "initContainer", "labels", "livenessProbe", "logging",
    "nodeSelector", "priorityClassName", "readinessProbe", "resources", "tolerations", "upgradeCRD",
    "use_ocp_driver_toolkit", *_OF_IMAGES,
)  # fmt: skip
# What needs no word: the operator's own programs, their images, and what other keys look at.
WORDLESS = frozenset(
    (
        "cdi.default",
        "daemonsets.rollingUpdate",
        # What counts where the operator cannot tell; the installer looks for itself.
        "operator.defaultRuntime",
        *(f"driver.{key}" for key in _OF_DRIVERS),
        *(f"operator.{key}" for key in _OF_THE_OPERATOR),
        *(f"{section}.{key}" for section in ("gdrcopy", "gds", "gfd") for key in _OF_IMAGES),
        *(f"{section}.{key}" for section in ("gdrcopy", "gds") for key in ("args", "env")),
        *(f"{section}.{key}" for section in ("devicePlugin", "toolkit") for key in _OF_IMAGES),
        "driver.rdma.useHostMofed",
        "gfd.args",
        "gfd.resources",
        # Variables: labels are written when they change, and by the plugin's own process.
        "GFD_SLEEP_INTERVAL",
        "GFD_FAIL_ON_INIT_ERROR",
        "NVIDIA_MIG_MONITOR_DEVICES",
    )
)
# Values that say what is so anyway.
WORDLESS_VALUES = {"hostPaths.rootFS": "/"}
