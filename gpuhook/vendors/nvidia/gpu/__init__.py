# SPDX-License-Identifier: Apache-2.0
"""Properties and modes of one GPU: compute mode, time slice, XIDs, isolation."""
