/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory limits of the stub, and the memory that the simulated driver's processes hold
 * (driver_memory.py): included by nvml_stub.c. Further lines of a GPU in the profile:
 *
 *   cgroups /tmp/x          plain directories below this one are taken for cgroups, too
 *   backend dmem            limits are the kernel's: see below; without the line, the driver's own
 *   backend dmem everywhere and all cgroups count as having the controller's files
 *   limits_wait 200         setting and reading limits take so many milliseconds
 *   limits_reading 1024 0   reading tells this hard and soft limit, whatever was set
 *   fail set_limits 4       setting fails with this nvmlReturn_t; reading: get_limits
 *
 * Limits are kept in nvml-stub.limits beside the profile, a file for each GPU and cgroup by the
 * device and inode of its directory, so that a cgroup has them under every mount: hard and soft
 * limit, time of the directory's birth, path. A directory that is gone has none, and one that is
 * made anew neither.
 *
 * With its own account ("misc") the driver takes the limits of the nearest cgroup that ever had some,
 * for reading, too; where there is none, reading is NOT_SUPPORTED. It takes no hard limit below what
 * is used. With the kernel's controller ("dmem") only a cgroup with a file dmem.max has limits,
 * NOT_FOUND is the answer for others; a hard limit below what is used is left out silently; and what
 * a soft limit grows or shrinks by is added to those of the cgroups above, as far as these have
 * dmem.max and are not the root. It stays there when the cgroup is removed.
 *
 * What is held are the lines of nvml-stub.held: UUID, pid, bytes, and the inodes
 * of the process's cgroup and of those above it.
 *
 * As with the driver, setting is for root alone and not for MIG. Compiled with
 * -DNVML_STUB_NO_MEMORY_LIMITS, the library hasn't got the calls: one from before CUDA 13.4.
 */
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define NO_LIMIT (~0ull)
enum { PATH = 4096 };

/* ---- what processes hold ---- */

struct holder {
	char uuid[TEXT], cgroups[1024];
	unsigned pid;
	unsigned long long bytes;
};

static void beside_profile(const char *name, char path[PATH + 64])
{
	const char *profile = profile_path(), *slash = strrchr(profile, '/');

	snprintf(path, PATH + 64, "%.*s/%s", slash ? (int)(slash - profile) : 0, profile, name);
}

static FILE *holders_opened(void)
{
	char path[PATH + 64];

	beside_profile("nvml-stub.held", path);
	return fopen(path, "re");
}

/* Read the next holder of this GPU's memory. */
static int holder_read(FILE *file, const char *uuid, struct holder *holder)
{
	char line[2048];

	while (fgets(line, sizeof line, file)) {
		holder->cgroups[0] = 0;
		if (sscanf(line, "%95s %u %llu %1023[^\n]", holder->uuid, &holder->pid,
			   &holder->bytes, holder->cgroups) >= 3 &&
		    !strcmp(holder->uuid, uuid))
			return 1;
	}
	return 0;
}

static unsigned holders_of(const char *uuid, struct process *found, unsigned room)
{
	FILE *file = holders_opened();
	struct holder holder;
	unsigned number = 0;

	while (file && number < room && holder_read(file, uuid, &holder))
		found[number++] = (struct process){ 'c', holder.pid, NO_INSTANCE, NO_INSTANCE,
						    holder.bytes };
	if (file)
		fclose(file);
	return number;
}

/* Return the bytes that are held by processes of the cgroup and below, by all without one. */
static unsigned long long held_in(const char *uuid, unsigned long long cgroup)
{
	FILE *file = holders_opened();
	unsigned long long sum = 0;
	struct holder holder;

	while (file && holder_read(file, uuid, &holder)) {
		char *next = holder.cgroups, *end;
		int counts = !cgroup;

		for (; !counts; next = end) {
			unsigned long long inode = strtoull(next, &end, 10);

			if (end == next)
				break;
			counts = inode == cgroup;
		}
		sum += counts ? holder.bytes : 0;
	}
	if (file)
		fclose(file);
	return sum;
}

static unsigned long long held_of(const char *uuid) { return held_in(uuid, 0); }

/* ---- the profile ---- */

/* Return whether the line was one of ours. */
static int memory_line(struct watched *gpu, const char *key, const char *value)
{
	if (!strcmp(key, "cgroups"))
		snprintf(gpu->cgroups, sizeof gpu->cgroups, "%s", value);
	else if (!strcmp(key, "backend")) {
		gpu->is_dmem = !strncmp(value, "dmem", 4);
		gpu->dmem_everywhere = !strcmp(value, "dmem everywhere");
	} else if (!strcmp(key, "limits_wait"))
		gpu->limits_wait = strtoul(value, NULL, 10);
	else if (!strcmp(key, "limits_reading"))
		gpu->limits_read = sscanf(value, "%llu %llu", &gpu->limits_reading[0],
					  &gpu->limits_reading[1]) == 2;
	else
		return 0;
	return 1;
}

#if !defined NVML_STUB_OLD && !defined NVML_STUB_NO_MEMORY_LIMITS
/* ---- the limits ---- */

struct cgroup {
	char file[PATH + 256]; /* of its limits */
	unsigned long long inode, born;
};

static int is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return length && !strncmp(path, directory, length) && path[length] == '/' &&
	       !strstr(path, "/../");
}

static int cgroup_found(const struct gpu *gpu, const char *path, struct cgroup *cgroup)
{
	struct statx found;
	struct statfs system;
	char directory[PATH + 64];

	if (!path || path[0] != '/' ||
	    syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_BTIME, &found) ||
	    (found.stx_mode & S_IFMT) != S_IFDIR || statfs(path, &system))
		return INVALID_ARGUMENT;
	if (system.f_type != CGROUP2_SUPER_MAGIC && !is_below(path, watched_of(gpu)->cgroups))
		return INVALID_ARGUMENT;
	cgroup->inode = found.stx_ino;
	cgroup->born = 0;
	if (found.stx_mask & STATX_BTIME)
		cgroup->born = found.stx_btime.tv_sec * 1000000000ull + found.stx_btime.tv_nsec;
	beside_profile("nvml-stub.limits", directory);
	mkdir(directory, 0755);
	snprintf(cgroup->file, sizeof cgroup->file, "%s/%s.%u-%u.%llu", directory, UUID_OF(gpu),
		 found.stx_dev_major, found.stx_dev_minor, cgroup->inode);
	return SUCCESS;
}

struct limits {
	const char *path;
	unsigned long long soft, hard, used; /* used: of reading alone */
};

static int limits_write(const struct cgroup *cgroup, const struct limits *limits)
{
	char new[PATH + 512];
	FILE *file;

	snprintf(new, sizeof new, "%s.%d.new", cgroup->file, getpid());
	file = fopen(new, "we");
	if (!file)
		return UNKNOWN;
	fprintf(file, "%llu %llu %llu %s\n", limits->hard, limits->soft, cgroup->born,
		limits->path);
	if (fclose(file) || rename(new, cgroup->file))
		return UNKNOWN;
	return SUCCESS;
}

/* Return whether limits of the cgroup were set before. */
static int limits_read(const struct cgroup *cgroup, struct limits *limits)
{
	unsigned long long hard, soft, born;
	FILE *file = fopen(cgroup->file, "re");
	int known = file && fscanf(file, "%llu %llu %llu", &hard, &soft, &born) == 3 &&
		    born == cgroup->born;

	limits->hard = known ? hard : NO_LIMIT;
	limits->soft = known ? soft : 0;
	if (file)
		fclose(file);
	return known;
}

static int has_dmem(const struct gpu *gpu, const char *path)
{
	char file[PATH + 64];

	snprintf(file, sizeof file, "%s/dmem.max", path);
	return watched_of(gpu)->dmem_everywhere || !access(file, F_OK);
}

/* The root of a mounted hierarchy has no such file, and no limits. */
static int is_root(const char *path)
{
	struct statfs system;
	char file[PATH + 64];

	snprintf(file, sizeof file, "%s/cgroup.type", path);
	return !statfs(path, &system) && system.f_type == CGROUP2_SUPER_MAGIC &&
	       access(file, F_OK);
}

/* Cut the last name off; return whether a cgroup is left. */
static int upwards(const struct gpu *gpu, char *path, struct cgroup *cgroup)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return 0;
	*slash = 0;
	return !cgroup_found(gpu, path, cgroup);
}

/* The kernel keeps for a cgroup only what is kept for all above it: so the driver sets it there. */
static void reserve_above(const struct gpu *gpu, const char *path, unsigned long long more)
{
	char above[PATH];
	struct cgroup cgroup;
	struct limits limits = { .path = above };

	snprintf(above, sizeof above, "%s", path);
	while (more && upwards(gpu, above, &cgroup) && has_dmem(gpu, above) && !is_root(above)) {
		limits_read(&cgroup, &limits);
		limits.soft += more;
		limits_write(&cgroup, &limits);
	}
}

/* Return the error of either call, once it has taken its time. */
static int limits_ask(const struct gpu *gpu, enum watch_question question, const char *path,
		      struct cgroup *cgroup)
{
	struct watched *more;
	int failed = ask(gpu, QUESTIONS);

	if (failed)
		return failed;
	usleep(watched_of(gpu)->limits_wait * 1000);
	failed = watch_ask(gpu, question, &more);
	if (failed)
		return failed;
	if (mig_of(gpu) || IS_IN_MIG_MODE(gpu))
		return NOT_SUPPORTED;
	return cgroup_found(gpu, path, cgroup);
}

int nvmlDeviceSetMemoryLimits_v1(const struct gpu *gpu, const struct limits *limits)
{
	struct cgroup cgroup;
	struct limits before, now = *limits;
	int known, failed = limits_ask(gpu, SET_LIMITS, limits->path, &cgroup);

	if (failed)
		return failed;
	if (geteuid())
		return NO_PERMISSION;
	if (!limits->hard || limits->soft > limits->hard || limits->soft > MEMORY_OF(gpu) ||
	    (limits->hard != NO_LIMIT && limits->hard > MEMORY_OF(gpu)))
		return INVALID_ARGUMENT;
	known = limits_read(&cgroup, &before);
	if (!watched_of(gpu)->is_dmem) {
		if (known && held_in(UUID_OF(gpu), cgroup.inode) > limits->hard)
			return INVALID_ARGUMENT;
		return limits_write(&cgroup, limits);
	}
	if (!has_dmem(gpu, limits->path))
		return NOT_FOUND;
	if (held_in(UUID_OF(gpu), cgroup.inode) > limits->hard)
		now.hard = before.hard;
	reserve_above(gpu, limits->path, now.soft - before.soft);
	return limits_write(&cgroup, &now);
}

int nvmlDeviceGetMemoryLimits_v1(const struct gpu *gpu, struct limits *limits)
{
	struct cgroup cgroup;
	const struct watched *more;
	char path[PATH];
	int known, failed = limits_ask(gpu, GET_LIMITS, limits->path, &cgroup);

	if (failed)
		return failed;
	more = watched_of(gpu);
	if (more->is_dmem && !has_dmem(gpu, limits->path))
		return NOT_FOUND;
	known = limits_read(&cgroup, limits) || more->is_dmem || more->limits_read;
	snprintf(path, sizeof path, "%s", limits->path);
	while (!known && upwards(gpu, path, &cgroup))
		known = limits_read(&cgroup, limits);
	if (!known)
		return NOT_SUPPORTED;
	limits->used = held_in(UUID_OF(gpu), cgroup.inode);
	if (more->limits_read) {
		limits->hard = more->limits_reading[0];
		limits->soft = more->limits_reading[1];
	}
	return SUCCESS;
}
#endif
