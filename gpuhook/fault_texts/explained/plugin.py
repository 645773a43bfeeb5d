# SPDX-License-Identifier: Apache-2.0
"""Faults GH18xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1800": (
        (
            "The plugin's configuration has mistakes; the message has the first. A running "
            "plugin goes on with the configuration that it has, a starting one ends."
        ),
        "Let --validate print all of them, with line, key and what to write.",
        """
$ gpuhook device-plugin --validate device-plugin-config.yaml
""",
    ),
    "GH1801": (
        (
            "The file or directory of the configuration cannot be read: it is not mounted, or "
            "the ConfigMap is of another namespace than the pod."
        ),
        "Mount the ConfigMap of the pod's own namespace.",
        """
$ kubectl -n gpu-operator get configmap device-plugin-config
""",
    ),
    "GH1802": (
        (
            "There are several configurations, and nothing says which one is this node's: its "
            "label is missing or names none of them."
        ),
        "Label the node, or name a default.",
        """
$ kubectl label node gpu-1 nvidia.com/device-plugin.config=default
""",
    ),
    "GH1803": (
        (
            "A value of the command line or of the environment is none that the option takes; "
            "the message has its source."
        ),
        "Follow the hint beside it.",
        """
$ MIG_STRATEGY=both gpuhook device-plugin
""",
    ),
    "GH1804": (
        "A single file and a directory of files were both named for the configuration.",
        "Leave one of the two out.",
        """
$ gpuhook device-plugin --config-file /config/default
""",
    ),
    "GH1805": (
        (
            "The plugin needs gRPC, protobuf and a Prometheus client, which the plain package "
            "does not bring."
        ),
        "Install the package, or the extra.",
        """
$ apt-get install ./gpuhook-device-plugin_*.deb
$ pip install 'gpuhook[plugin]'
""",
    ),
    "GH1806": (
        "The kernel keeps 15 bytes of a process's name.",
        "Choose a shorter name.",
        """
$ gpuhook device-plugin --process-name nvidia-device-p
""",
    ),
    "GH1807": (
        (
            "A label of the node chooses among several configurations. The plugin's pod has no "
            "token for the API server, so it cannot read the label, and the default configuration "
            "applies to every node. This is so after an edit of the ConfigMap that adds a second "
            "configuration: the chart grants access only if its values have several."
        ),
        (
            "Put the configurations into the chart's values, or set apiAccess.nodeConfig: true, "
            "and run helm upgrade."
        ),
        """
$ helm upgrade gpuhook packaging/helm/gpuhook --namespace gpuhook --reuse-values \\
    --set apiAccess.nodeConfig=true
""",
    ),
    "GH1820": (
        (
            "Somebody called the plugin's socket with bytes that are no message of the device "
            "plugin API."
        ),
        "Only the kubelet calls it; see which program does.",
        """
$ ss -xp | grep gpuhook
""",
    ),
    "GH1821": (
        (
            "The plugin cannot make its socket: the directory is not there, not writable, or "
            "not the kubelet's."
        ),
        "Mount the kubelet's directory, writable, at the same path.",
        """
volumes:
  - name: plugins
    hostPath: {path: /var/lib/kubelet/device-plugins}
""",
    ),
    "GH1822": (
        "A unix socket's path may have 107 bytes at most.",
        "Mount the directory at a shorter path.",
        """
--device-plugin-path /plugins
""",
    ),
    "GH1823": (
        "The kubelet was called and refused the registration, for the reason in the message.",
        "See the kubelet's log; its API must be v1beta1.",
        """
$ journalctl -u kubelet | grep -i 'device plugin'
""",
    ),
    "GH1824": (
        (
            "Another process serves this resource's socket: a second gpuhook, often from an "
            "update whose old pod has not ended."
        ),
        "Run one plugin on each node; this one waits meanwhile.",
        """
$ kubectl -n kube-system get pods -o wide | grep device-plugin
""",
    ),
    "GH1836": (
        "A resource names an interposer that the configuration does not describe.",
        "Add it to gpuhook.interposers, or correct the name.",
        """
gpuhook:
  interposers:
    - name: nvshare
      containerEdits: {mounts: [{hostPath: /usr/lib/nvshare, containerPath: /usr/lib/nvshare}]}
""",
    ),
    "GH1837": (
        "The library that containers of this resource are to load is not on the host.",
        "Install it, or take `interposer` away.",
        """
$ ls -l /usr/lib/nvshare/libnvshare.so
""",
    ),
    "GH1838": (
        (
            "A container has several devices, and the interposer's variable can have one value "
            "only, which differs from device to device."
        ),
        "Ask for one device, or leave that placeholder away.",
        """
limits: {nvidia.com/gpu: 1}
""",
    ),
    "GH1839": (
        "The interposer is told the container's memory limit, and its device has none.",
        "Set `memory` in the entry of the resource.",
        """
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 4, memory: fair}]
""",
    ),
    "GH1840": (
        (
            "migStrategy single offers instances as if they were GPUs, so all GPUs must be "
            "divided, or none; on this node some are."
        ),
        "Switch MIG mode alike on all, exclude some, or use mixed.",
        """
$ nvidia-smi -i 0 -mig 1
""",
    ),
    "GH1841": (
        (
            "A GPU is in MIG mode and has no instance, so migStrategy single has nothing to "
            "offer of it."
        ),
        "Make instances, exclude the GPU, or use mixed.",
        """
$ nvidia-smi mig -i 1 -cgi 19,19,19 -C
""",
    ),
    "GH1842": (
        "migStrategy single offers one resource, and the instances are of several sizes.",
        "Make them alike, or use mixed, which has a resource for each profile.",
        """
flags: {migStrategy: mixed}
""",
    ),
    "GH1843": (
        "The kubelet wants a device in its allocation that the plugin no longer has.",
        "Delete the pod; what creates it makes it anew.",
        """
$ kubectl delete pod POD
""",
    ),
    "GH1844": (
        "The kubelet named a device twice in one call, which it does not do by itself.",
        "See whether something else calls the plugin's socket.",
        """
$ ss -xp | grep device-plugins
""",
    ),
    "GH1845": (
        "The kubelet asked for fewer devices than it demands to be among them.",
        "Report it with the kubelet's version: it does not do so by itself.",
        """
$ kubelet --version
""",
    ),
    "GH1846": (
        "Fewer devices are free than the pod asks for.",
        "Wait until others end, or ask for less.",
        """
$ gpuhook ps
""",
    ),
    "GH1847": (
        (
            "A memory limit of the configuration does not fit the GPUs of this node: the shares "
            "are more than the card, or a share is too small for a CUDA context."
        ),
        "Follow the hint; `--validate FILE --inventory NODE` tries it before it is rolled out.",
        """
$ gpuhook device-plugin --validate config.yaml --inventory t4
""",
    ),
    "GH1848": (
        (
            "Memory cut into units this small makes more devices than the kubelet takes in one "
            "message."
        ),
        "Choose a larger unit.",
        """
sharing:
  memoryUnits: {resources: [{name: nvidia.com/gpu, unit: GiB}]}
""",
    ),
    "GH1849": (
        "So much memory is free on the node, and not on one GPU: a request is never split.",
        "Ask for less, or wait.",
        """
limits: {nvidia.com/gpumem: 8}
""",
    ),
    "GH1850": (
        "The kubelet hands out a device that the plugin no longer has: its list is older.",
        "Delete the pod; what creates it makes it anew.",
        """
$ kubectl get pod POD -o jsonpath='{.status.reason}'
UnexpectedAdmissionError
""",
    ),
    "GH1851": (
        "The device became unhealthy between the pod's scheduling and its start.",
        "Delete the pod; the scheduler finds another device.",
        """
$ gpuhook health show
""",
    ),
    "GH1852": (
        (
            "failRequestsGreaterThanOne is set: two replicas of a GPU are the same GPU, not "
            "twice as much, so a container may ask for one."
        ),
        "Ask for 1.",
        """
limits: {nvidia.com/gpu: 1}
""",
    ),
    "GH1853": (
        (
            "The plugin's way to hand devices over needs a CDI spec, and none can be written "
            "for this node."
        ),
        "Complete the driver's installation, or add envvar.",
        """
flags: {plugin: {deviceListStrategy: [envvar]}}
""",
    ),
    "GH1854": (
        "The resource is shared by MPS and its control daemon does not run.",
        "See the plugin's log; it is tried again.",
        """
$ kubectl -n kube-system logs ds/gpuhook-device-plugin | grep -i mps
""",
    ),
    "GH1855": (
        "The device that was allocated is in no CDI spec: it was left out as it was written.",
        "See the warning in the plugin's log.",
        """
$ gpuhook cdi list
""",
    ),
    "GH1856": (
        "An IMEX channel is configured as required and its node is not there.",
        "Make the node, or do not require it.",
        """
$ nvidia-modprobe -c 0 -i
""",
    ),
    "GH1857": (
        "The container was about to start, and its device is unhealthy.",
        "Delete the pod.",
        """
$ gpuhook health show
""",
    ),
    "GH1858": (
        (
            "gpuhook.minFreeMemory wants so much free memory on the GPU before a container "
            "starts, and neighbours use it."
        ),
        "See who, or lower the number; the kubelet tries again.",
        """
$ gpuhook ps
""",
    ),
    "GH1859": (
        "The units that the kubelet chose are of several GPUs.",
        "Delete the pod; what creates it makes it anew.",
        """
$ kubectl delete pod POD
""",
    ),
    "GH1860": (
        "The name is no UUID of a GPU.",
        "Take it from `gpuhook health show`.",
        """
$ gpuhook health clear GPU-5f1d63d6-9f0c-4c0b-8d3a-0c6b1f6f2a11
""",
    ),
    "GH1861": (
        "No GPU of that name is marked as unhealthy, or the beginning of a UUID means several.",
        "See which are marked.",
        """
$ gpuhook health show
""",
    ),
    "GH1862": (
        "The API server does not answer: the pod has no network, or the name is not resolved.",
        "It is tried again; devices are served meanwhile.",
        """
$ kubectl -n kube-system exec ds/gpuhook-device-plugin -- getent hosts kubernetes.default.svc
""",
    ),
    "GH1863": (
        "A feature that is switched on needs a permission that the service account has not.",
        "Apply the ClusterRole that comes with the plugin, or switch the feature off.",
        """
$ kubectl apply -f packaging/kubernetes/api-access.yaml
""",
    ),
    "GH1864": (
        "The API server refused a call with the status in the message.",
        "It is tried again; 401 means a token that is not accepted, 403 a missing permission.",
        """
$ kubectl auth can-i patch nodes --as system:serviceaccount:kube-system:gpuhook-device-plugin
""",
    ),
    "GH1865": (
        "The file with the marks of unhealthy GPUs cannot be read, or was broken.",
        "Read it as root, or begin anew.",
        """
$ gpuhook health clear all
""",
    ),
    "GH1870": (
        (
            "One MPS daemon serves all devices of a resource and gives every client the same "
            "share; the GPUs differ."
        ),
        "Give the different ones a resource name of their own.",
        """
sharing:
  mps: {resources: [{name: nvidia.com/gpu, rename: gpu-small, replicas: 4, devices: [0]}]}
""",
    ),
    "GH1871": (
        "The GPU's generation serves so many MPS clients at once and no more.",
        "Lower replicas, or share it by time slicing.",
        """
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 16}]}}
""",
    ),
    "GH1872": (
        "MPS on MIG instances is not served.",
        "Share the instances by time slicing.",
        """
sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}
""",
    ),
    "GH1873": (
        "The MPS control daemon's program is not in the driver root.",
        "Install the package that has it.",
        """
$ apt-get install nvidia-cuda-mps
""",
    ),
    "GH1874": (
        "The daemon refused a command.",
        "Read its log, which the message names.",
        """
$ tail /run/nvidia/mps/nvidia.com/gpu/log/control.log
""",
    ),
    "GH1875": (
        "MPS shares memory below that path, which has to be a tmpfs, and none can be mounted.",
        "Put --mps-root below /run, or mount one.",
        """
$ mount -t tmpfs tmpfs /run/nvidia/mps
""",
    ),
    "GH1877": (
        "The GPU's compute mode cannot be set, for the reason in the message.",
        "Run the plugin privileged, or set the mode on the host.",
        """
$ nvidia-smi -i 0 -c EXCLUSIVE_PROCESS
""",
    ),
    "GH1878": (
        (
            "The MPS control daemon keeps its pipes and logs in --mps-root, and the plugin's "
            "container cannot write there. This is so after an edit of the ConfigMap that chooses "
            "MPS: the chart mounts the directory only if its values have sharing.mps."
        ),
        (
            "Put the configuration into the chart's values, or set features.mps: true, and run "
            "helm upgrade."
        ),
        """
$ helm upgrade gpuhook packaging/helm/gpuhook --namespace gpuhook --reuse-values \\
    --set features.mps=true
""",
    ),
    "GH1880": (
        (
            "What a GPU had before is noted first, so that it can be put back at the end; the "
            "note cannot be written."
        ),
        "Mount the state directory, writable, into the plugin's container.",
        """
volumeMounts: [{name: state, mountPath: /run/gpuhook}]
""",
    ),
    "GH1881": (
        "A setting of a GPU could not be put back as it was before.",
        "It is tried again; a reboot does it, too.",
        """
$ nvidia-smi -q -d COMPUTE
""",
    ),
    "GH1882": (
        "Time slice and compute mode are a whole GPU's; the entry means instances.",
        "Name other devices in the entry.",
        """
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, timeSlice: short}]}}
""",
    ),
    "GH1883": (
        "Under MPS the daemon sets the compute mode.",
        "Take computeMode away there.",
        """
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
""",
    ),
    "GH1885": (
        "The guard has to see the host's processes, and the plugin's pod does not.",
        "Run the pod with hostPID.",
        """
spec: {hostPID: true}
""",
    ),
    "GH1886": (
        "The guard may end a process and has not the permission, or an old kernel.",
        "Give the container the capability.",
        """
securityContext: {capabilities: {add: [KILL]}}
""",
    ),
    "GH1887": (
        "NVML has not answered for so long, so nobody knows who uses how much.",
        "See whether nvidia-smi answers.",
        """
$ timeout 20 nvidia-smi
""",
    ),
    "GH1890": (
        "The address for metrics is in use, or not this host's.",
        "Choose another, or serve none.",
        """
gpuhook: {metrics: {address: "127.0.0.1:9396"}}
""",
    ),
    "GH1891": (
        "The address for metrics is no host and port.",
        "Write host:port.",
        """
gpuhook: {metrics: {address: ":9395"}}
""",
    ),
}
