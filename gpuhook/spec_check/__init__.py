# SPDX-License-Identifier: Apache-2.0
"""CDI specs of any vendor, held against the rules and against the host."""
