# SPDX-License-Identifier: Apache-2.0
"""What a running container has of its GPUs."""
