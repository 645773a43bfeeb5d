# SPDX-License-Identifier: Apache-2.0
"""Docker's daemon.json edited in place."""
