/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts of a GPU that NVML reports. `make generate` writes this file from the fields of
 * gpuhook/vendors/nvidia/inventory/inventory.py. FACT: NVML has no function for this value alone;
 * SETTING_FACT: not every driver has it.
 */
TEXT_FACT(uuid, nvmlDeviceGetUUID)
FACT(pci_bus_id)
NUMBER_FACT(minor, nvmlDeviceGetMinorNumber)
TEXT_FACT(name, nvmlDeviceGetName)
NUMBER_FACT(brand, nvmlDeviceGetBrand)
NUMBER_FACT(architecture, nvmlDeviceGetArchitecture)
FACT(compute_capability)
FACT(memory_bytes)
FACT(mig_mode)
SETTING_FACT(compute_mode, nvmlDeviceGetComputeMode)
SETTING_FACT(persistence_mode, nvmlDeviceGetPersistenceMode)
