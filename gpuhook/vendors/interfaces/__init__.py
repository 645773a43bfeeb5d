# SPDX-License-Identifier: Apache-2.0
"""What a vendor answers to commands and services, by feature; for type checkers only."""
