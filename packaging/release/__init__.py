# SPDX-License-Identifier: Apache-2.0
"""The checks and the notes of a release."""
