# SPDX-License-Identifier: Apache-2.0
"""What the wrapper reads of a node with AMD GPUs."""
