# SPDX-License-Identifier: Apache-2.0
"""How much of its GPUs' memory a container may have: set at its start, changed while it runs."""
