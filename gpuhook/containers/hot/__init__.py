# SPDX-License-Identifier: Apache-2.0
"""The ledger: which container holds which device. The wrapper writes it."""
