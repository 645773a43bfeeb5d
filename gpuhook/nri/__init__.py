# SPDX-License-Identifier: Apache-2.0
"""The NRI plugin: changes containers when containerd or CRI-O creates them."""
