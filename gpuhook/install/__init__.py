# SPDX-License-Identifier: Apache-2.0
"""gpuhook puts itself on a host, out of a container, and takes itself away again."""
