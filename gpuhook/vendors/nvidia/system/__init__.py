# SPDX-License-Identifier: Apache-2.0
"""What a node needs before its GPUs can be given away: kernel modules, device nodes, links."""
