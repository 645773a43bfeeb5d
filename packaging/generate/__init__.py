# SPDX-License-Identifier: Apache-2.0
"""Files of this checkout that are made of other files of it."""
