# SPDX-License-Identifier: Apache-2.0
"""The version gate: which runtime gets CDI names, which expanded edits, which nothing."""

from __future__ import annotations

import pytest

from gpuhook.nri.runtime_support import CDI, EXPANDED, UNSUPPORTED, support_of


@pytest.mark.parametrize(
    ("name", "version", "mode"),
    [
        ("containerd", "1.6.20~ds1", UNSUPPORTED),
        ("containerd", "1.7.0", EXPANDED),
        ("containerd", "1.7.24~ds1", EXPANDED),
        ("containerd", "1.7.24~ds1-6+deb13u1", EXPANDED),
        ("containerd", "v1.7.30", EXPANDED),  # only with enable_cdi, which it does not report
        ("containerd", "2.0.11", EXPANDED),
        ("containerd", "v2.0.4", EXPANDED),
        ("v2", "2.0.1", EXPANDED),
        ("v2", "v2.0.3+unknown", EXPANDED),
        ("containerd", "v2.1.4", CDI),
        ("containerd", "2.1.9+ds1", CDI),
        ("containerd", "2.1.4~ds2", CDI),
        ("containerd", "v2.1.0-rc.1", EXPANDED),
        ("containerd", "2.1.0~beta.2", EXPANDED),
        ("containerd", "v2.2.0-rc.1", CDI),
        ("containerd", "v2.4.0-beta.0", CDI),
        ("containerd", "v2.1.4-k3s1", CDI),
        ("containerd", "v10.0.0", CDI),
        ("cri-o", "1.25.1", UNSUPPORTED),
        ("cri-o", "1.26.0", EXPANDED),
        ("cri-o", "1.33.5", EXPANDED),
        ("cri-o", "1.34.1", CDI),
        ("cri-o", "1.34.0-dev", EXPANDED),
        ("crio", "v1.37.0", CDI),
        ("docker", "29.2.0", UNSUPPORTED),
        ("docker", "", UNSUPPORTED),
        # Expanded edits work with every NRI of this design.
        ("containerd", "", EXPANDED),
        ("containerd", "unknown", EXPANDED),
        ("containerd", "v2", EXPANDED),
        ("containerd", "2.1", CDI),
        ("", "", EXPANDED),
        ("other", "9.9.9", EXPANDED),
        ("containerd\x00", "2.1.4", EXPANDED),
        ("containerd", "9" * 5000 + ".1.0", EXPANDED),
        ("containerd", "\u0662.\u0661.0", EXPANDED),
    ],
)
def test_modes(name: str, version: str, mode: str) -> None:
    support = support_of(name, version)
    assert support.mode == mode
    assert bool(support.reason) == (mode != CDI)


def test_state_of_containers() -> None:
    """containerd's shim has one root for Kubernetes; CRI-O's runtimes have their own defaults."""
    containerd, crio = support_of("v2", "2.0.1"), support_of("cri-o", "1.34.1")
    assert containerd.state_root("nvidia") == "/run/containerd/runc/k8s.io"
    assert containerd.bundle("c0").endswith("/k8s.io/c0")
    assert crio.state_root("") in {"/run/crun", "/run/runc"}
    assert crio.bundle("c0") == ""
