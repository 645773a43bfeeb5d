# SPDX-License-Identifier: Apache-2.0
"""Commands that look at a node and change nothing: explain, doctor, compare, ps, map."""
