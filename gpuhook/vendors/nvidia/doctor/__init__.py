# SPDX-License-Identifier: Apache-2.0
"""Doctor's checks of NVIDIA's driver: its files, its device nodes and its GPUs."""
