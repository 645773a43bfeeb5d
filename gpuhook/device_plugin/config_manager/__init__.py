# SPDX-License-Identifier: Apache-2.0
"""config-manager: the program beside NVIDIA's device plugin that follows a label of the node.

gpuhook's own plugin does that by itself. The GPU Operator starts a program of this name all the
same, out of the image that it starts the plugin from.
"""
