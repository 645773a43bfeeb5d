# SPDX-License-Identifier: Apache-2.0
"""What the node of tests/engines/test_documented_pages.py has before the lines of each page.

The scripts run on the node as root, in the directory of the page's files; /srv has what
documented_node.py has put there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.documented.running import Expected

CUDA = "nvidia/cuda:12.4.1-base-ubuntu22.04"
IMAGE = f"docker.io/{CUDA}"
SMI_LIST = "/srv/nvidia-smi"  # a program that replaces `nvidia-smi -L`
PYTORCH = "nvcr.io/nvidia/pytorch:24.05-py3"
SAMPLE = "nvcr.io/nvidia/samples:vectoradd-cuda10.2"
GPU = "GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913"  # index 0
WAIT = "sh -c 'trap exit TERM; while :; do sleep 60 & wait; done'"
RUN = "docker run --detach --name"

# A container without a GPU, and one that has got one.
NOTEBOOK = f"{RUN} notebook {CUDA} {WAIT}"
TRAINER = f"{RUN} trainer {PYTORCH} {WAIT} && gpuhook attach trainer --device 0"
# NVIDIA's legacy hook gives it a GPU, which a daemon-reload takes away.
LOST = f"""
library=$(readlink -f /usr/lib/x86_64-linux-gnu/libcuda.so.1)
{RUN} trainer --env NVIDIA_VISIBLE_DEVICES=0 --volume $library:$library:ro {PYTORCH} {WAIT}
pid=$(docker inspect --format '{{{{.State.Pid}}}}' trainer)
for node in /dev/nvidia1\\
    /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools; do
    numbers=$(stat --format='%Hr %Lr' $node)
    nsenter --target=$pid --mount sh -c 'umask 0; exec mknod "$@"' sh $node c $numbers
    set -- "$@" "c $(echo $numbers | tr ' ' :) rw"
done
python3 /srv/legacy.py $pid "$@"
systemctl daemon-reload
"""
# A container of `runc run` that requests a GPU.
BUNDLE = """
mkdir bundle && runc spec --bundle bundle
python3 - <<END
import json
spec = json.load(open("bundle/config.json"))
spec["process"] |= {"terminal": False, "args": ["sleep", "1000"]}
spec["process"]["env"].append("NVIDIA_VISIBLE_DEVICES=0")
spec["root"]["path"] = "/srv/image"
json.dump(spec, open("bundle/config.json", "w"))
END
runc run --detach --bundle bundle trainer </dev/null >/dev/null 2>&1
"""
RUNTIME = "gpuhook configure docker --restart"
LOCAL = "cp -r /srv/local/usr/local/. /usr/local"  # what `make install` writes
UNPACKED = "mkdir -p build && ln -s /srv/packages build/packages"
BUILT = "cp -r /srv/build/. ."  # the last stage of the Dockerfile, with the tree of the others
TOOLKIT = """
mkdir -p /etc/nvidia-container-runtime
echo 'disable-require = true' >/etc/nvidia-container-runtime/config.toml
"""
MODULE = "/srv/gpus/proc/driver/nvidia/version /srv/gpus/sys/module/nvidia/version"
OLD_MODULE = f"sed -i s/580.95.05/575.57.08/ {MODULE}"
JOB = f"podman run --detach --name job {IMAGE} {WAIT}"
AMD_IMAGE = "rocm/rocm-terminal"
# It opens the device nodes as rocminfo does. They have no driver: open(2) fails with ENXIO.
ROCMINFO = """#!/bin/sh
for node in /dev/kfd /dev/dri/renderD*; do
    message=$( (: <>"$node") 2>&1)
    case $message in
        *'No such device or address'*) echo "$node" ;;
        *) echo "Unable to open $node: $message"; exit 1 ;;
    esac
done
"""
# What AMD's toolkit leaves on a node.
AMD_SPEC = "mkdir -p /etc/cdi && echo '{}' >/etc/cdi/amd.json"
AMD_RUNTIME = """
echo '{"runtimes": {"amd": {"path": "/usr/bin/amd-container-runtime", "args": []}}}' \\
    >/etc/docker/daemon.json
"""
ALICE = "cd /home/alice && runuser -u alice -- env HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1000"


def pod(namespace: str, name: str, container: str, image: str = IMAGE) -> str:
    """Return a script that runs a container with the annotations of containerd's CRI."""
    values = {"sandbox-namespace": namespace, "sandbox-name": name, "container-name": container,
              "container-type": "container"}  # fmt: skip
    words = " ".join(f"--annotation io.kubernetes.cri.{key}={text}" for key, text in values.items())
    return f"podman run --detach --device nvidia.com/gpu=0 {words} {image} {WAIT}"


REPLACES = {
    r" \.\.\.(?=\s|$)": f" {IMAGE} nvidia-smi",
    r"\bIMAGE ID COMMAND": f"{IMAGE} one nvidia-smi",
    r"\bctr run\b": "ctr run --cpu-shares 0",  # the node has no controller `cpu`
    r"\bUSER\b": "alice",
    r"\bIMAGE$": f"{IMAGE} nvidia-smi",
    r"\bCONTAINER\b": "trainer",
    r"GPU-\.\.\.": GPU,
    r"_NEW\.deb": "_*.deb",
    r"\bREGISTRY\b": "localhost:5000",
    r"\bTAG\b": "0.1.0",
    "4f0c1d": "job",
    "VISIBLE_DEVICES=0:0": "VISIBLE_DEVICES=2:0",  # the GPU in MIG mode
}
# page -> a part of a line -> what is done before it.
BEFORE: dict[str, dict[str, str | Sequence[str]]] = {
    "README.md": {"apt-get install": UNPACKED},
    "docs/amd.md": {"rm /etc/cdi": AMD_SPEC, "--take-over": AMD_RUNTIME},
    "docs/how-to/air-gapped.md": {
        "docker build": BUILT,
        "apt-get install": "cp /srv/packages/*.deb .",
    },
    "docs/how-to/by-hand.md": {"cd /usr/local": LOCAL, "runc state": BUNDLE},
    "docs/how-to/image.md": {"docker build": BUILT},
    "docs/how-to/install.md": {
        "apt-get install ./build": UNPACKED,
        "nvidia-compat": "cp /srv/packages/*.deb .",
    },
    "docs/how-to/kubernetes.md": {
        "docker build": BUILT,
        "node uninstall": "docker run --rm --privileged --pid host -v /:/host"
        " localhost:5000/gpuhook:0.1.0 node install --host-root /host",
    },
    "docs/how-to/live.md": {"inspect trainer": LOST, "attach notebook": NOTEBOOK},
    "docs/how-to/mig.md": {"docker run": RUNTIME},
    "docs/how-to/migration.md": {"config import": TOOLKIT},
    "docs/how-to/podman.md": {"attach": f"{ALICE} {JOB}"},
    "docs/how-to/services.md": {
        "cp /usr/local": LOCAL,
        "udevadm": "mount -o remount,rw /sys && systemctl start systemd-udevd",
    },
    "docs/how-to/share-a-gpu.md": {"docker run": RUNTIME, "gpuhook ps": TRAINER},
    "docs/how-to/troubleshooting.md": {
        "explain ml": pod("ml", "train-0", "main"),
        "gpuhook doctor": (LOST, f"docker rm --force trainer && {OLD_MODULE}"),
    },
    "docs/ko/kubernetes.md": {
        "gpuhook ps": " && ".join(
            pod("default", f"gpu-test-{n}", "cuda-vector-add", SAMPLE) for n in (1, 2)
        )
    },
    "docs/reference/cdi-specs.md": {
        "--driver-root": "mkdir -p /run/nvidia/driver /home/kubernetes/bin/nvidia"
        " && cp -r /srv/gpus/usr /run/nvidia/driver"
        " && cp -r /srv/gpus/usr /home/kubernetes/bin/nvidia",
        "made.yaml": "gpuhook generate-cdi --output-file made.yaml",
    },
    "docs/reference/compare.md": {"compare web": pod("web", "nginx", "main")},
    "docs/reference/configuration.md": {"config import": TOOLKIT},
    "docs/reference/doctor.md": {"gpuhook doctor": LOST},
    "docs/reference/extras.md": {
        "imex": "mkdir /dev/nvidia-caps-imex-channels"
        " && mknod /dev/nvidia-caps-imex-channels/channel0 c 511 0"
        " && mknod /dev/nvidia-fs0 c 510 0",
    },
    "docs/reference/labels.md": {"default.yaml": "cp plugin.yaml default.yaml"},
    "docs/reference/map.md": {"gpuhook ps": TRAINER},
    "docs/reference/memory.md": {"limits show": TRAINER, "docker run": RUNTIME},
    "docs/start/debug.md": {"explain ml": pod("ml", "train-0", "main"), "inspect trainer": TRAINER},
    "docs/start/kubernetes.md": {"docker build": BUILT},
    "docs/start/workstation.md": {"apt-get install": UNPACKED},
}
# Lines with another exit status than 0.
STATUS: dict[str, dict[str, int]] = {
    "docs/how-to/podman.md": {"detach": 1},
    "docs/how-to/troubleshooting.md": {"gpuhook doctor": 1},
    "docs/reference/doctor.md": {"gpuhook doctor": 1},
}
# Lines whose output on the page is that of another node.
DIFFERS: dict[str, tuple[str, ...]] = {"docs/reference/map.md": ("gpuhook",)}
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
# How a line is run that does not end, or that a user runs.
AROUND: dict[str, dict[str, str]] = {
    "docs/amd.md": {"keep-groups": f"{ALICE} {{line}}"},
    "docs/how-to/podman.md": {"podman unshare": f"{ALICE} {{line}}"},
    "docs/how-to/slurm.md": {"devices": "CUDA_VISIBLE_DEVICES=0,1\n{line}"},
    # The status of a program that head ends is 1.
    "docs/reference/cli.md": {"head -1": "set +o pipefail\n{line}"},
    "docs/reference/labels.md": {
        "--interval": f"{{line}} & until [ -s {FEATURES} ]; do sleep 0.1; done; kill $!; wait $!",
    },
    # It asks a terminal, and its container runs `nvidia-smi -L`.
    "docs/start/workstation.md": {
        "gpuhook setup": f"mount --bind {SMI_LIST} /usr/bin/nvidia-smi\n"
        "printf 'podman\\ny\\n' | script -qec '{line}' /dev/null\n"
        "status=$?; umount /usr/bin/nvidia-smi; (exit $status)"
    },
}


def expected(page: str) -> Expected:
    """Return how the lines of a page are run."""
    return Expected(
        REPLACES,
        STATUS.get(page, {}),
        BEFORE.get(page, {}),
        AROUND.get(page, {}),
        DIFFERS.get(page, ()),
    )
