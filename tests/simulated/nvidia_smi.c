/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for nvidia-smi that runs in any image (static) and needs no driver: it lists the GPU
 * nodes in /dev and what opening each one says. Without a driver an allowed node answers ENXIO,
 * one that the device cgroup forbids answers EPERM.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *opening(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return "open";
	}
	switch (errno) {
	case ENXIO:
	case ENODEV:
		return "allowed (ENXIO: no hardware behind it)";
	case EPERM:
		return "denied (EPERM: device cgroup)";
	case EACCES:
		return "denied (EACCES: file mode)";
	default:
		return strerror(errno);
	}
}

static int wanted(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "nvidia", 6) && isdigit((unsigned char)entry->d_name[6]);
}

int main(void)
{
	struct dirent **entries;
	int seen = 0, number = scandir("/dev", &entries, wanted, versionsort);

	for (int i = 0; i < number; i++) {
		char path[300];
		struct stat status;

		snprintf(path, sizeof path, "/dev/%s", entries[i]->d_name);
		if (stat(path, &status) || !S_ISCHR(status.st_mode))
			continue;
		printf("GPU %s (%u:%u): %s\n", path, major(status.st_rdev), minor(status.st_rdev),
		       opening(path));
		seen++;
	}
	if (!seen) {
		puts("No devices were found");
		return 6; /* as nvidia-smi: a query for a device was unsuccessful */
	}
	return 0;
}
