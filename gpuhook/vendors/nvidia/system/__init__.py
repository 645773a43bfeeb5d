# SPDX-License-Identifier: Apache-2.0
"""The requirements of a node for its GPUs: kernel modules, device nodes, links."""
