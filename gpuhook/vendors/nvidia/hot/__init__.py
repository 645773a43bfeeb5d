# SPDX-License-Identifier: Apache-2.0
"""What the wrapper needs of NVIDIA: the vocabulary of requests, node facts, freshness."""
