# SPDX-License-Identifier: Apache-2.0
"""Doctor checks of the kubelet, the device plugin and the cluster's node."""
