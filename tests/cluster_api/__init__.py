# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server for the tests of DRA, with the limits of 1.36, and an allocator."""
