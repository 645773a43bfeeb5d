/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of nvml_stub.c that watching a node needs; nvml_stub.c includes it at its end. Further
 * lines of a GPU in the profile, and but for the events and the topology of a MIG device:
 *
 *   events 11               mask of the event types that it supports (11 without the line); 0: none
 *   used 1048576            bytes of its memory that are in use; so does: reserved
 *   recovery 1              its recovery action; without the line, the driver has no such field
 *   compute_mode 3          nvmlComputeMode_t; one that was set is in nvml-stub.mode.UUID, next to
 *                           the profile, and remains when the library's process ends
 *   levels 0 10 50          topology levels to the GPUs by index
 *   nvlink switch BUS 6     six links to the switch at BUS, or: nvlink gpu BUS 6, nvlink down - 6;
 *                           BUS "-": the driver does not tell it
 *   process compute 42 1024 0 1    pid, bytes or -, GPU and compute instance or nothing; the kind
 *                           is compute, graphics or mps
 *   busy 40                 its utilisation in percent; without the line, it tells none
 *   works 42 35             process 42 has used 35 percent of its time
 *   fabric UUID 3 2         32 hexadecimal digits, state, clique
 *   fail events 3           as in nvml_stub.c: events, register, recovery, topology, nvlink,
 *                           processes, fabric; nvml_stub_memory.c has more
 *
 * nvmlInit is counted. The file changes under a started library: values are new at the next
 * question, GPUs beyond the number at start are not there until the last nvmlShutdown.
 *
 * Events are lines of nvml-stub.events beside the profile; an event set sees those that are
 * appended after it was made, within 5 ms:
 *
 *   xid 79 GPU-... 1 0      XID 79, of GPU instance 1 and compute instance 0, or of neither; UUID
 *                           "-": of a GPU that cannot be told
 *   ecc single GPU-...      a bit error: single or double
 *   fail 15                 waiting fails once with this nvmlReturn_t; "fail 15 always": from now
 *                           on, in all sets, until the line "well"
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25 };
enum { SINGLE_BIT = 1, DOUBLE_BIT = 2, XID = 8 };
enum { NO_INSTANCE = 0xffffffffu, MAX_LINKS = 18, MAX_PROCESSES = 64, MAX_HOLDERS = 256 };
enum { SLICE_MS = 3000 };

enum watch_question {
	EVENTS, REGISTER, RECOVERY, TOPOLOGY, NVLINK, PROCESSES, FABRIC, SET_LIMITS,
	GET_LIMITS, WATCH_QUESTIONS
};

static const char *const watch_names[WATCH_QUESTIONS] = {
	"events", "register", "recovery", "topology", "nvlink", "processes", "fabric",
	"set_limits", "get_limits",
};

struct process {
	char kind; /* its first letter */
	unsigned pid, gpu_instance, compute_instance;
	unsigned long long memory;
};

struct nvlink {
	char type; /* first letter of gpu, switch, down */
	char bus[32];
};

struct watched {
	int fail[WATCH_QUESTIONS];
	int recovery;
	unsigned events, levels[MAX_GPUS], level_count;
	unsigned link_count, process_count;
	unsigned long long used, reserved;
	struct nvlink links[MAX_LINKS];
	struct process processes[MAX_PROCESSES];
	int busy;
	unsigned working_count, working[MAX_PROCESSES][2]; /* pid, percent */
	unsigned char cluster[16];
	unsigned fabric_state, clique;
	char cgroups[200];
	int is_dmem, dmem_everywhere;
	unsigned limits_wait;
	int limits_read; /* as limits_reading has it */
	unsigned long long limits_reading[2];
};

/* In nvml_stub_memory.c. */
static int memory_line(struct watched *gpu, const char *key, const char *value);
static unsigned holders_of(const char *uuid, struct process *found, unsigned room);
static unsigned long long held_of(const char *uuid);

static struct watched *watched[MAX_GPUS * (1 + MAX_INSTANCES)]; /* made when they are needed */
static unsigned nested;
static struct stat profile_seen;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

/* ---- the profile ---- */

static void watched_empty(struct watched *more)
{
	memset(more, 0, sizeof *more);
	more->recovery = more->busy = -1;
	more->events = SINGLE_BIT | DOUBLE_BIT | XID;
}

/* What is known of a GPU or a MIG device. */
static struct watched *watched_of(const struct gpu *gpu)
{
	const struct mig *mig = mig_of(gpu);
	struct watched **more = &watched[mig ? MAX_GPUS + (mig - migs) : gpu - gpus];

	if (!*more) {
		*more = malloc(sizeof **more);
		watched_empty(*more);
	}
	return *more;
}

static void watch_reset(void)
{
	for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
		if (watched[i])
			watched_empty(watched[i]);
	if (stat(profile_path(), &profile_seen))
		profile_seen = (struct stat){ 0 };
}

static void links_line(struct watched *gpu, const char *value)
{
	char type[16], bus[32];
	int number;

	if (sscanf(value, "%15s %31s %d", type, bus, &number) != 3)
		return;
	while (number-- > 0 && gpu->link_count < MAX_LINKS) {
		struct nvlink *link = &gpu->links[gpu->link_count++];

		link->type = type[0];
		snprintf(link->bus, sizeof link->bus, "%s", bus);
	}
}

static void process_line(struct watched *gpu, const char *value)
{
	char kind[16], memory[32];
	struct process new = { .gpu_instance = NO_INSTANCE, .compute_instance = NO_INSTANCE };

	if (gpu->process_count == MAX_PROCESSES ||
	    sscanf(value, "%15s %u %31s %u %u", kind, &new.pid, memory, &new.gpu_instance,
		   &new.compute_instance) < 3)
		return;
	new.kind = kind[0];
	new.memory = memory[0] == '-' ? ~0ull : strtoull(memory, NULL, 10);
	gpu->processes[gpu->process_count++] = new;
}

static void works_line(struct watched *gpu, const char *value)
{
	unsigned *new = gpu->working[gpu->working_count];

	if (gpu->working_count < MAX_PROCESSES && sscanf(value, "%u %u", &new[0], &new[1]) == 2)
		gpu->working_count++;
}

static void levels_line(struct watched *gpu, const char *value)
{
	int used;

	while (gpu->level_count < MAX_GPUS &&
	       sscanf(value, "%u%n", &gpu->levels[gpu->level_count], &used) == 1) {
		gpu->level_count++;
		value += used;
	}
}

static void fabric_line(struct watched *gpu, const char *value)
{
	for (int i = 0; i < 16; i++, value += 2)
		if (sscanf(value, "%2hhx", &gpu->cluster[i]) != 1)
			return;
	sscanf(value, "%u %u", &gpu->fabric_state, &gpu->clique);
}

static int fail_line(struct watched *gpu, const char *value)
{
	char word[16];
	int number;

	if (sscanf(value, "%15s %d", word, &number) != 2)
		return 0;
	for (int i = 0; i < WATCH_QUESTIONS; i++)
		if (!strcmp(word, watch_names[i])) {
			gpu->fail[i] = number;
			return 1;
		}
	return 0;
}

/* Return whether the line was one of ours. */
static int watch_line(struct gpu *whole, const char *key, const char *value)
{
	struct watched *gpu = watched_of(whole);

	if (!strcmp(key, "fail"))
		return fail_line(gpu, value);
	if (!strcmp(key, "events"))
		gpu->events = atoi(value);
	else if (!strcmp(key, "used"))
		gpu->used = strtoull(value, NULL, 10);
	else if (!strcmp(key, "reserved"))
		gpu->reserved = strtoull(value, NULL, 10);
	else if (!strcmp(key, "recovery"))
		gpu->recovery = atoi(value);
	else if (!strcmp(key, "levels"))
		levels_line(gpu, value);
	else if (!strcmp(key, "nvlink"))
		links_line(gpu, value);
	else if (!strcmp(key, "process"))
		process_line(gpu, value);
	else if (!strcmp(key, "busy"))
		gpu->busy = atoi(value);
	else if (!strcmp(key, "works"))
		works_line(gpu, value);
	else if (!strcmp(key, "fabric"))
		fabric_line(gpu, value);
	else
		return memory_line(gpu, key, value);
	return 1;
}

/* Return whether the driver went away; read the profile again if it changed. */
static int watch_gone(void)
{
	struct stat now;
	unsigned known;
	int gone;

	pthread_mutex_lock(&reading);
	gone = stat(profile_path(), &now) != 0;
	if (!gone && now.st_size &&
	    (now.st_ino != profile_seen.st_ino || now.st_size != profile_seen.st_size ||
	     now.st_mtim.tv_sec != profile_seen.st_mtim.tv_sec ||
	     now.st_mtim.tv_nsec != profile_seen.st_mtim.tv_nsec)) {
		known = gpu_count;
		gone = profile_read() != SUCCESS;
		if (gpu_count > known)
			gpu_count = known;
	}
	pthread_mutex_unlock(&reading);
	return gone;
}

static int watch_nested(void)
{
	nested++;
	watch_gone();
	return SUCCESS;
}

static int watch_left(void)
{
	if (!nested)
		return 0;
	nested--;
	return 1;
}

/* Of the first version: what is reserved counts as used. */
static unsigned long long watch_used(const struct gpu *gpu)
{
	if (!mig_of(gpu) && (gpu < gpus || gpu >= gpus + gpu_count))
		return 0;
	return watched_of(gpu)->used + watched_of(gpu)->reserved + held_of(UUID_OF(gpu));
}

/* ---- questions ---- */

/* Return the error of the question; *more is what is known of the GPU. */
static int watch_ask(const struct gpu *gpu, enum watch_question question, struct watched **more)
{
	int failed;

	/* A lost GPU fails everything, and ask() has only its own questions. */
	failed = ask(gpu, QUESTIONS);
	if (failed)
		return failed;
	*more = watched_of(gpu);
	return (*more)->fail[question];
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu)
{
	if (!started)
		return UNINITIALIZED;
	if (watch_gone())
		return UNKNOWN;
	for (unsigned i = 0; i < gpu_count; i++)
		if (!strcmp(UUID_OF(&gpus[i]), uuid))
			return handle(i, gpu);
	for (unsigned i = 0; i < mig_count; i++)
		if (!strcmp(UUID_OF(&migs[i].device), uuid)) {
			*gpu = &migs[i].device;
			return ask(*gpu, HANDLE);
		}
	return NOT_FOUND;
}

static FILE *mode_opened(const struct gpu *gpu, const char *how)
{
	const char *profile = profile_path(), *slash = strrchr(profile, '/');
	char path[4096 + 160];

	snprintf(path, sizeof path, "%.*s/nvml-stub.mode.%s", slash ? (int)(slash - profile) : 0,
		 profile, UUID_OF(gpu));
	return fopen(path, how);
}

static int setting(const struct gpu *gpu, enum question fact, unsigned *number)
{
	FILE *set = fact == ASK_compute_mode ? mode_opened(gpu, "re") : NULL;
	int failed = *gpu->facts[fact] ? SUCCESS : NOT_SUPPORTED;

	*number = atoi(gpu->facts[fact]);
	if (set) {
		failed = fscanf(set, "%u", number) == 1 ? SUCCESS : UNKNOWN;
		fclose(set);
	}
	return failed;
}

/* CAP_SYS_ADMIN, which the kernel module requires. */
static int is_administrator(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long capabilities = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "CapEff: %llx", &capabilities);
	if (file)
		fclose(file);
	return capabilities >> 21 & 1;
}

int nvmlDeviceSetComputeMode(const struct gpu *gpu, unsigned mode)
{
	int failed = ask(gpu, ASK_compute_mode);
	FILE *set;

	if (failed)
		return failed;
	if (!is_administrator())
		return NO_PERMISSION;
	if (!*gpu->facts[ASK_compute_mode])
		return NOT_SUPPORTED;
	set = mode_opened(gpu, "we");
	if (!set)
		return UNKNOWN;
	fprintf(set, "%u\n", mode);
	fclose(set);
	return SUCCESS;
}

/* The first version of the structure ends after the memory. Drivers from 535.43 to 535.98, which
 * knew confidential computing and no list of details yet, had one more number at its end.
 */
static int processes(const struct gpu *gpu, char kind, unsigned *number, void *array, size_t size)
{
	struct {
		unsigned pid;
		unsigned long long memory;
		unsigned gpu_instance, compute_instance;
		unsigned long long protected_memory;
	} one;
	struct process all[MAX_PROCESSES + MAX_HOLDERS];
	unsigned found = 0, room = *number, count;
	struct watched *more;
	int failed = watch_ask(gpu, PROCESSES, &more);

	if (failed)
		return failed;
	count = more->process_count;
	memcpy(all, more->processes, count * sizeof *all);
	count += holders_of(UUID_OF(gpu), all + count, MAX_HOLDERS);
	for (unsigned i = 0; i < count; i++) {
		const struct process *process = &all[i];

		if (process->kind != kind)
			continue;
		memset(&one, 0, sizeof one);
		one.pid = process->pid;
		one.memory = process->memory;
		one.gpu_instance = process->gpu_instance;
		one.compute_instance = process->compute_instance;
		if (found < room)
			memcpy((char *)array + found * size, &one, size);
		found++;
	}
	*number = found;
	return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifdef NVML_STUB_OLD
int nvmlDeviceGetComputeRunningProcesses(const struct gpu *gpu, unsigned *number, void *array)
{
	return processes(gpu, 'c', number, array, 16);
}
#else
int nvmlDeviceGetConfComputeMemSizeInfo(void) { return NOT_SUPPORTED; }

#ifdef NVML_STUB_NO_DETAIL_LIST
enum { PROCESS_SIZE = 32 };
#else
enum { PROCESS_SIZE = 24 };

int nvmlDeviceGetRunningProcessDetailList(void) { return NOT_SUPPORTED; }
#endif

int nvmlDeviceGetComputeRunningProcesses_v3(const struct gpu *gpu, unsigned *number, void *array)
{
	return processes(gpu, 'c', number, array, PROCESS_SIZE);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(const struct gpu *gpu, unsigned *number, void *array)
{
	return processes(gpu, 'g', number, array, PROCESS_SIZE);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(const struct gpu *gpu, unsigned *number, void *array)
{
	return processes(gpu, 'm', number, array, PROCESS_SIZE);
}

struct utilisation {
	unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(const struct gpu *gpu, struct utilisation *rates)
{
	struct watched *more;
	int failed = watch_ask(gpu, PROCESSES, &more);

	if (failed)
		return failed;
	*rates = (struct utilisation){ more->busy, 0 };
	return mig_of(gpu) || more->busy < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* nvmlProcessUtilizationSample_t */
struct sample {
	unsigned pid;
	unsigned long long time; /* microseconds since 1970 */
	unsigned multiprocessors, memory, encoder, decoder;
};

int nvmlDeviceGetProcessUtilization(const struct gpu *gpu, struct sample *samples,
				    unsigned *number, unsigned long long since)
{
	struct watched *more;
	struct timespec now;
	unsigned long long time;
	int failed = watch_ask(gpu, PROCESSES, &more);

	if (failed)
		return failed;
	if (mig_of(gpu) || more->busy < 0)
		return NOT_SUPPORTED;
	clock_gettime(CLOCK_REALTIME, &now);
	time = now.tv_sec * 1000000ull + now.tv_nsec / 1000;
	if (!more->working_count || time <= since)
		return NOT_FOUND;
	if (*number < more->working_count) {
		*number = more->working_count;
		return INSUFFICIENT_SIZE;
	}
	*number = more->working_count;
	for (unsigned i = 0; i < *number; i++)
		samples[i] = (struct sample){
			.pid = more->working[i][0],
			.time = time,
			.multiprocessors = more->working[i][1],
		};
	return SUCCESS;
}

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(const struct gpu *gpu, struct memory_v2 *memory)
{
	const struct watched *more;
	int failed = ask(gpu, ASK_memory_bytes);

	if (failed)
		return failed;
	more = watched_of(gpu);
	if (memory->version != (sizeof *memory | 2 << 24))
		return ARGUMENT_VERSION_MISMATCH;
	memory->total = MEMORY_OF(gpu);
	memory->reserved = more->reserved;
	memory->used = more->used + held_of(UUID_OF(gpu));
	memory->free = memory->total - memory->used - more->reserved;
	return SUCCESS;
}

struct field {
	unsigned id, scope;
	long long time, latency;
	unsigned type;
	int failed;
	union {
		unsigned number;
		unsigned long long large;
	} value;
};

int nvmlDeviceGetFieldValues(const struct gpu *gpu, int number, struct field *fields)
{
	struct watched *more;
	int failed = watch_ask(gpu, RECOVERY, &more);

	if (failed)
		return failed;
	for (int i = 0; i < number; i++) {
		int known = fields[i].id == 230 && more->recovery >= 0;

		fields[i].type = 1; /* an unsigned int */
		fields[i].failed = known ? SUCCESS : NOT_SUPPORTED;
		fields[i].value.large = 0;
		fields[i].value.number = known ? more->recovery : 0;
	}
	return SUCCESS;
}

/* nvmlGpuFabricInfo_v2_t; nvmlGpuFabricState_t is one byte. */
struct fabric {
	unsigned version;
	unsigned char cluster[16];
	unsigned status, clique;
	unsigned char state, padding[3];
	unsigned health;
};

int nvmlDeviceGetGpuFabricInfoV(const struct gpu *gpu, struct fabric *info)
{
	struct watched *more;
	int failed = watch_ask(gpu, FABRIC, &more);

	if (failed)
		return failed;
	if (info->version != (sizeof *info | 2 << 24))
		return ARGUMENT_VERSION_MISMATCH;
	memcpy(info->cluster, more->cluster, sizeof info->cluster);
	info->status = SUCCESS;
	info->clique = more->clique;
	info->state = more->fabric_state;
	memset(info->padding, 0xa5, sizeof info->padding); /* a copied structure's is anything */
	info->health = 0;
	return SUCCESS;
}

/* ---- topology ---- */

int nvmlDeviceGetTopologyCommonAncestor(const struct gpu *one, const struct gpu *other,
					unsigned *level)
{
	struct watched *more, *unused;
	int failed = watch_ask(one, TOPOLOGY, &more);

	failed = failed ? failed : watch_ask(other, TOPOLOGY, &unused);
	if (failed)
		return failed;
	if ((unsigned)(other - gpus) >= more->level_count)
		return NOT_SUPPORTED;
	*level = more->levels[other - gpus];
	return SUCCESS;
}

static int nvlink(const struct gpu *gpu, unsigned number, const struct nvlink **link)
{
	struct watched *more;
	int failed = watch_ask(gpu, NVLINK, &more);

	if (failed)
		return failed;
	if (number >= MAX_LINKS)
		return INVALID_ARGUMENT;
	if (number >= more->link_count)
		return NOT_SUPPORTED;
	*link = &more->links[number];
	return SUCCESS;
}

int nvmlDeviceGetNvLinkState(const struct gpu *gpu, unsigned number, unsigned *active)
{
	const struct nvlink *link;
	int failed = nvlink(gpu, number, &link);

	*active = !failed && link->type != 'd';
	return failed;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const struct gpu *gpu, unsigned number, unsigned *type)
{
	const struct nvlink *link;
	int failed = nvlink(gpu, number, &link);

	*type = failed ? 0xff : link->type == 's' ? 2 : link->type == 'g' ? 0 : 0xff;
	return failed;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct gpu *gpu, unsigned number, struct pci_v3 *info)
{
	const struct nvlink *link;
	int failed = nvlink(gpu, number, &link);

	if (failed)
		return failed;
	if (link->bus[0] == '-')
		return NOT_SUPPORTED;
	memset(info, 0, sizeof *info);
	snprintf(info->bus_id, sizeof info->bus_id, "%s", link->bus);
	sscanf(link->bus, "%x:%x:%x", &info->v1.domain, &info->v1.bus, &info->v1.device);
	return SUCCESS;
}
#endif

/* ---- events ---- */

struct event_set {
	unsigned types[MAX_GPUS];
	long offset; /* in the file of events */
	int fails;   /* always, with this error */
	int is_watched, fd; /* the inotify of the first wait that had nothing to tell */
};

struct event {
	const struct gpu *gpu;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
};

static const char *events_path(void)
{
	static char path[4096 + 32];
	const char *profile = profile_path(), *slash = strrchr(profile, '/');

	snprintf(path, sizeof path, "%.*s/nvml-stub.events", slash ? (int)(slash - profile) : 0,
		 profile);
	return path;
}

/* Read one whole line from the set's offset on. */
static int event_line(struct event_set *set, char line[256])
{
	struct stat now;
	char *end;
	FILE *file;

	if (stat(events_path(), &now) || now.st_size <= set->offset)
		return 0;
	file = fopen(events_path(), "re");
	if (!file)
		return 0;
	end = fseek(file, set->offset, SEEK_SET) || !fgets(line, 256, file) ? NULL
									     : strchr(line, '\n');
	fclose(file);
	if (!end)
		return 0;
	set->offset += end + 1 - line;
	return 1;
}

/* Return the error that the line says, 0 if it is an event of the set, TIMEOUT if it isn't. */
static int event_read(struct event_set *set, const char *line, struct event *event)
{
	static const struct gpu nobody;
	char kind[16], uuid[TEXT], always[16] = "";
	int number;

	*event = (struct event){ &nobody, XID, 0, NO_INSTANCE, NO_INSTANCE };
	if (!strncmp(line, "well", 4))
		set->fails = 0;
	if (sscanf(line, "fail %d %15s", &number, always) >= 1) {
		if (always[0])
			set->fails = number;
		return number;
	}
	if (sscanf(line, "ecc %15s %95s", kind, uuid) == 2)
		event->type = kind[0] == 's' ? SINGLE_BIT : DOUBLE_BIT;
	else if (sscanf(line, "xid %llu %95s %u %u", &event->data, uuid, &event->gpu_instance,
			&event->compute_instance) < 2)
		return TIMEOUT;
	if (uuid[0] == '-')
		return SUCCESS;
	for (unsigned i = 0; i < gpu_count; i++)
		if (!strcmp(UUID_OF(&gpus[i]), uuid) && set->types[i] & event->type) {
			event->gpu = &gpus[i];
			return SUCCESS;
		}
	return TIMEOUT;
}

static long long clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

/* Return a descriptor that can be read when something happens to the files of the stub. */
static int files_watched(void)
{
	char directory[4096 + 32];
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	snprintf(directory, sizeof directory, "%s", events_path());
	*strrchr(directory, '/') = 0;
	if (fd >= 0)
		inotify_add_watch(fd, directory, IN_CREATE | IN_DELETE | IN_MODIFY | IN_MOVE);
	return fd;
}

/* Sleep until something happens, and not for long: nvmlShutdown and a full inotify tell nobody. */
static void files_wait(int fd, long long milliseconds)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char events[4096];
	int most = fd < 0 ? 5 : SLICE_MS;

	if (poll(&ready, 1, milliseconds < most ? milliseconds : most) > 0)
		while (read(fd, events, sizeof events) > 0)
			;
}

/* A wait that has nothing to tell costs next to nothing, as with a driver. */
static int event_wait(struct event_set *set, struct event *event, unsigned milliseconds)
{
	char line[256];
	int said;
	long long now, end = clock_ms() + milliseconds;

	for (;;) {
		if (!started)
			return UNINITIALIZED;
		/* Reading the profile is left to those who ask: they would see half of it. */
		if (access(profile_path(), F_OK))
			return UNKNOWN;
		while (event_line(set, line)) {
			pthread_mutex_lock(&reading);
			said = event_read(set, line, event);
			pthread_mutex_unlock(&reading);
			if (said != TIMEOUT)
				return said;
		}
		if (set->fails)
			return set->fails;
		now = clock_ms();
		if (now >= end)
			return TIMEOUT;
		if (set->is_watched) {
			files_wait(set->fd, end - now);
			continue;
		}
		/* What came before that is looked for once more. It stays open: closing an inotify
		   takes milliseconds. */
		set->fd = files_watched();
		set->is_watched = 1;
	}
}

int nvmlEventSetCreate(struct event_set **set)
{
	struct event ignored;
	char line[256];

	if (!started)
		return UNINITIALIZED;
	if (watch_gone())
		return UNKNOWN;
	*set = calloc(1, sizeof **set);
	while (event_line(*set, line)) /* nobody was waiting for these; what stays is remembered */
		event_read(*set, line, &ignored);
	return SUCCESS;
}

int nvmlEventSetFree(struct event_set *set)
{
	if (set->is_watched && set->fd >= 0)
		close(set->fd);
	free(set);
	return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(const struct gpu *gpu, unsigned long long *types)
{
	struct watched *more;
	int failed = watch_ask(gpu, EVENTS, &more);

	if (failed)
		return failed;
	if (mig_of(gpu))
		return NOT_SUPPORTED;
	*types = more->events;
	return SUCCESS;
}

int nvmlDeviceRegisterEvents(const struct gpu *gpu, unsigned long long types, struct event_set *set)
{
	struct watched *more;
	int failed = watch_ask(gpu, REGISTER, &more);

	if (failed)
		return failed;
	if (mig_of(gpu) || types & ~(unsigned long long)more->events)
		return NOT_SUPPORTED;
	set->types[gpu - gpus] |= types;
	return SUCCESS;
}

#ifdef NVML_STUB_OLD
int nvmlEventSetWait(struct event_set *set, void *data, unsigned milliseconds)
{
	struct event event;
	int failed = event_wait(set, &event, milliseconds);

	if (!failed)
		memcpy(data, &event, 24); /* without the instances */
	return failed;
}
#else
int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned milliseconds)
{
	struct event found;
	int failed = event_wait(set, &found, milliseconds);

	if (!failed)
		*event = found;
	return failed;
}
#endif
