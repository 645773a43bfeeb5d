# SPDX-License-Identifier: Apache-2.0
"""The GPU operator's ClusterPolicy, or the values of its chart, as values of gpuhook's chart."""
