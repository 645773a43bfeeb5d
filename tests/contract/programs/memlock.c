/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into crun where the machine forbids raising RLIMIT_MEMLOCK: crun wants that before it
 * loads its device program, newer kernels account the program's memory elsewhere and need it not.
 */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int limited(int resource, const struct rlimit *limit)
{
	if (resource == RLIMIT_MEMLOCK)
		return 0;
	return (int)syscall(SYS_prlimit64, 0, resource, limit, (void *)0);
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	return limited((int)resource, limit);
}

int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	return limited((int)resource, (const struct rlimit *)limit);
}
