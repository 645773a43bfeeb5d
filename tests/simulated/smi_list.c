/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for `nvidia-smi -L`: it loads the driver's library by the loader, as nvidia-smi does,
 * and lists the GPUs and MIG instances of DEVICES (node and UUID) whose nodes it may open. Without
 * a driver, a node that the device cgroup allows answers ENXIO.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *node, *uuid;
} devices[] = { DEVICES };

static int may_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno == ENXIO || errno == ENODEV;
}

int main(int argc, char **argv)
{
	int seen = 0;

	if (argc != 2 || strcmp(argv[1], "-L"))
		return 2;
	if (!dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
		puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.");
		return 12;
	}
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		if (!may_open(devices[i].node))
			continue;
		printf("%s: Simulated (UUID: %s)\n", devices[i].node, devices[i].uuid);
		seen++;
	}
	if (!seen) {
		puts("No devices found.");
		return 6; /* as nvidia-smi: a query for a device was unsuccessful */
	}
	return 0;
}
