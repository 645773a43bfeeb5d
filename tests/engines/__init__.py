# SPDX-License-Identifier: Apache-2.0
"""Container engines of several Debian releases with gpuhook's packages: `make test-engines`."""
