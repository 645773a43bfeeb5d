# SPDX-License-Identifier: Apache-2.0
"""What the checks of a node are, and the facts about the node that checks of any vendor use."""
