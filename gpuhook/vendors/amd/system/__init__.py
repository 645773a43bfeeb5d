# SPDX-License-Identifier: Apache-2.0
"""What a node with AMD GPUs supports."""
