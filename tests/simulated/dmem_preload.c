/* SPDX-License-Identifier: Apache-2.0
 *
 * A library for LD_PRELOAD: files of the controller dmem below /sys/fs/cgroup, and lists of
 * controllers, are those below $DMEM_CGROUPS (dmem_mount.py). Everything else is the machine's, so
 * that device programs and a driver's cgroups are real.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CGROUPS "/sys/fs/cgroup/"
#define SIZE 4096

static const char *redirected(const char *path, char *space)
{
	const char *root = getenv("DMEM_CGROUPS");
	const char *name = path ? strrchr(path, '/') : NULL;

	if (!root || !name || strncmp(path, CGROUPS, sizeof CGROUPS - 1))
		return path;
	if (strncmp(name, "/dmem.", 6) && strcmp(name, "/cgroup.controllers") &&
	    strcmp(name, "/cgroup.subtree_control"))
		return path;
	snprintf(space, SIZE, "%s/%s", root, path + sizeof CGROUPS - 1);
	return space;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(last) \
	va_list more; \
	mode_t mode; \
	va_start(more, last); \
	mode = (last) & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
	va_end(more)

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		char space[SIZE]; \
		MODE(flags); \
		return REAL(name)(redirected(path, space), flags, mode); \
	}
#define OPENAT(name) \
	int name(int at, const char *path, int flags, ...) \
	{ \
		char space[SIZE]; \
		MODE(flags); \
		return REAL(name)(at, redirected(path, space), flags, mode); \
	}
#define STAT(name, type) \
	int name(const char *path, struct type *found) \
	{ \
		char space[SIZE]; \
		return REAL(name)(redirected(path, space), found); \
	}

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

int access(const char *path, int mode)
{
	char space[SIZE];

	return REAL(access)(redirected(path, space), mode);
}
