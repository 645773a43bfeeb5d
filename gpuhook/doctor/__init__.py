# SPDX-License-Identifier: Apache-2.0
"""`gpuhook doctor`: checks of a node, what their findings mean, and how to fix the faults."""
