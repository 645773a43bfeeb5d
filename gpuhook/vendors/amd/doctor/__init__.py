# SPDX-License-Identifier: Apache-2.0
"""The checks of nodes with AMD GPUs. Without one, they do not apply."""
