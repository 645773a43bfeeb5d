# SPDX-License-Identifier: Apache-2.0
"""A container runtime's side of NRI, for the tests: containerd or CRI-O without containers."""
