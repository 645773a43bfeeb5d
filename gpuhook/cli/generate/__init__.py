# SPDX-License-Identifier: Apache-2.0
"""`gpuhook generate-cdi` and `gpuhook refresh`."""
