# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are not to be given away, and what proves that they are well again."""
