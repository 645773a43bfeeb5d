# SPDX-License-Identifier: Apache-2.0
"""config-manager: a program of NVIDIA's device plugin that follows a label of the node.

gpuhook's plugin does that itself. The GPU Operator nevertheless starts a program with this name
from the image of the plugin.
"""
