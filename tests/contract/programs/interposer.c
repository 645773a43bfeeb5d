/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that is preloaded, as an interposer is: it answers dlopen in the place of the C library
 * for the name in INTERPOSED, and notes in INTERPOSER_LOG that it was there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void note(void)
{
	const char *path = getenv("INTERPOSER_LOG"), *share = getenv("INTERPOSER_SHARE");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%s\n", share ? share : "");
	close(fd);
}

void *dlopen(const char *name, int flags)
{
	void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
	const char *refused = getenv("INTERPOSED");

	return name && refused && !strcmp(name, refused) ? NULL : real(name, flags);
}
