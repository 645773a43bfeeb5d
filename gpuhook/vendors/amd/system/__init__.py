# SPDX-License-Identifier: Apache-2.0
"""The rest of a system with AMD GPUs: what the kernel supports, what support needs."""
