# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi` and its subcommands."""
