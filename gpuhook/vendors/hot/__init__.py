# SPDX-License-Identifier: Apache-2.0
"""The vendors' answers to the wrapper, which imports few modules."""
