# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told."""
