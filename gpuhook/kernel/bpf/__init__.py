# SPDX-License-Identifier: Apache-2.0
"""Device programs of cgroup v2: the bpf(2) system call, instructions, rules."""
