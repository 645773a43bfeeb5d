# SPDX-License-Identifier: Apache-2.0
"""The time slices and compute modes of shared GPUs: what they are to be, and what they were."""
