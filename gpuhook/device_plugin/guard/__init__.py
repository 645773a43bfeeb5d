# SPDX-License-Identifier: Apache-2.0
"""Who uses more of a GPU's memory than its share where no driver holds it to that."""
