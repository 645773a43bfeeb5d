# SPDX-License-Identifier: Apache-2.0
"""The GPUs of all nodes of a cluster, as the metrics of gpuhook's device plugins report them."""
