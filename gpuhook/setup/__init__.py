# SPDX-License-Identifier: Apache-2.0
"""`gpuhook setup`: the facts of a node, a plan of the existing commands, its run, and the proof."""
