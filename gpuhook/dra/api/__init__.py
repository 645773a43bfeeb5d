# SPDX-License-Identifier: Apache-2.0
"""The kubelet's gRPC services for drivers of Dynamic Resource Allocation."""
