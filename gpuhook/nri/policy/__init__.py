# SPDX-License-Identifier: Apache-2.0
"""What the policy of requests is based on: the kubelet's assignments, and annotations of pods."""
