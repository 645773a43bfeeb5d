/* SPDX-License-Identifier: Apache-2.0
 *
 * MIG devices of the stub: included by nvml_stub.c. Lines of the profile below a `gpu`:
 *
 *   instance 2              the MIG device of index 2 begins; until the next `instance` or `gpu`
 *                           uuid, name, memory_bytes and fail are its own
 *   ids 9 0                 of its GPU instance and its compute instance
 *   attributes 14 1 0 0 0 0 1 1 4864
 *                           multiprocessors, copy engines, decoders, encoders, jpegs, ofas, slices
 *                           of the GPU instance and of the compute instance, MiB
 *   profile 7 20 MIG 1g.5gb+me
 *                           NVML's number of the GPU instance's profile, its id, its name
 *   placement 4 4           the first memory slice of its GPU instance, and their number
 *   fail attributes 3       this question fails: instance (the handle), ids, attributes, profile,
 *                           and those of a GPU
 *
 * A MIG device that its GPU is lost for is lost too. Compiled with -DNVML_STUB_NO_MIG, the library
 * knows the MIG mode and nothing else of MIG; with -DNVML_STUB_NO_PROFILE_NAMES, the first version
 * of profiles and attributes alone.
 */

#define MAX_INSTANCES 8

enum mig_question { M_INSTANCE, M_IDS, M_ATTRIBUTES, M_PROFILE, M_QUESTIONS };

static const char *const mig_question_names[M_QUESTIONS] = {
	"instance", "ids", "attributes", "profile",
};

struct mig {
	struct gpu device; /* first, so that a handle of one is a handle of the other */
	struct gpu *parent;
	unsigned index, gi, ci, profile, profile_id, start, size, numbers[8];
	unsigned long long memory_mib;
	char profile_name[TEXT];
	int fail[M_QUESTIONS];
};

static struct mig migs[MAX_GPUS * MAX_INSTANCES];
static unsigned mig_count;

static int ask(const struct gpu *gpu, enum question question);

static struct mig *mig_of(const struct gpu *gpu)
{
	struct mig *mig = (struct mig *)gpu;

	return mig >= migs && mig < migs + mig_count ? mig : NULL;
}

/* Takes a line that is a MIG device's; others are left to the GPU. */
static int mig_line(struct gpu *gpu, const char *key, const char *value)
{
	struct mig *mig = mig_count ? &migs[mig_count - 1] : NULL;
	unsigned *n;
	char word[32];
	int number, known = 0;

	if (!strcmp(key, "instance") && mig_count < MAX_GPUS * MAX_INSTANCES) {
		migs[mig_count++] = (struct mig){ .device.lost_after = -1, .parent = gpu,
						  .index = atoi(value) };
		return 1;
	}
	if (!mig || mig->parent != gpu)
		return 0;
	n = mig->numbers;
	if (!strcmp(key, "ids"))
		sscanf(value, "%u %u", &mig->gi, &mig->ci);
	else if (!strcmp(key, "attributes"))
		sscanf(value, "%u %u %u %u %u %u %u %u %llu", n, n + 1, n + 2, n + 3, n + 4, n + 5,
		       n + 6, n + 7, &mig->memory_mib);
	else if (!strcmp(key, "placement"))
		sscanf(value, "%u %u", &mig->start, &mig->size);
	else if (!strcmp(key, "profile"))
		sscanf(value, "%u %u %95[^\n]", &mig->profile, &mig->profile_id,
		       mig->profile_name);
	else if (!strcmp(key, "fail") && sscanf(value, "%31s %d", word, &number) == 2) {
		for (int i = 0; i < M_QUESTIONS; i++)
			if (!strcmp(word, mig_question_names[i])) {
				mig->fail[i] = number;
				known = 1;
			}
		return known || (gpu_line(&mig->device, key, value), 1);
	} else
		gpu_line(&mig->device, key, value);
	return 1;
}

/* A question of a GPU that is put to a MIG device: lost with its GPU. */
static int mig_ask(struct mig *mig, enum question question)
{
	int failed = ask(mig->parent, HANDLE);

	return failed ? failed : mig->device.fail[question];
}

#if !defined NVML_STUB_OLD && !defined NVML_STUB_NO_MIG
static int mig_fails(struct mig *mig, enum mig_question question)
{
	int failed = mig ? ask(mig->parent, HANDLE) : INVALID_ARGUMENT;

	return failed ? failed : mig->fail[question];
}

int nvmlDeviceGetMaxMigDeviceCount(const struct gpu *gpu, unsigned *number)
{
	*number = strcmp(gpu->facts[ASK_mig_mode], "unsupported") ? MAX_INSTANCES - 1 : 0;
	return ask(gpu, HANDLE);
}

int nvmlDeviceGetMigDeviceHandleByIndex(const struct gpu *gpu, unsigned index, struct mig **mig)
{
	int failed = ask(gpu, HANDLE);

	for (unsigned i = 0; !failed && i < mig_count; i++)
		if (migs[i].parent == gpu && migs[i].index == index) {
			*mig = &migs[i];
			return migs[i].fail[M_INSTANCE];
		}
	return failed ? failed : NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(const struct gpu *gpu, unsigned *id)
{
	int failed = mig_fails(mig_of(gpu), M_IDS);

	if (!failed)
		*id = mig_of(gpu)->gi;
	return failed;
}

int nvmlDeviceGetComputeInstanceId(const struct gpu *gpu, unsigned *id)
{
	int failed = mig_fails(mig_of(gpu), M_IDS);

	if (!failed)
		*id = mig_of(gpu)->ci;
	return failed;
}

/* nvmlDeviceAttributes_t: the first version ends after ofas. */
struct attributes {
	unsigned numbers[8];
	unsigned long long memory_mib;
};

static int attributes(const struct gpu *gpu, struct attributes *found, size_t size)
{
	int failed = mig_fails(mig_of(gpu), M_ATTRIBUTES);
	struct attributes all;

	if (failed)
		return failed;
	memcpy(all.numbers, mig_of(gpu)->numbers, sizeof all.numbers);
	all.memory_mib = mig_of(gpu)->memory_mib;
	memcpy(found, &all, size);
	return SUCCESS;
}

struct gi_info {
	const struct gpu *device;
	unsigned id, profile_id, start, size;
};

int nvmlDeviceGetGpuInstanceById(const struct gpu *gpu, unsigned id, struct mig **mig)
{
	int failed = ask(gpu, HANDLE);

	for (unsigned i = 0; !failed && i < mig_count; i++)
		if (migs[i].parent == gpu && migs[i].gi == id) {
			*mig = &migs[i];
			return SUCCESS;
		}
	return failed ? failed : NOT_FOUND;
}

int nvmlGpuInstanceGetInfo(struct mig *mig, struct gi_info *info)
{
	int failed = mig_fails(mig, M_PROFILE);

	if (!failed)
		*info = (struct gi_info){ mig->parent, mig->gi, mig->profile_id,
					   mig->start, mig->size };
	return failed;
}

/* nvmlGpuInstanceProfileInfo_t and _v2_t. */
struct gi_profile {
	unsigned id, numbers[9];
	unsigned long long memory_mib;
};

struct gi_profile_v2 {
	unsigned version, id, numbers[9];
	unsigned long long memory_mib;
	char name[TEXT];
};

static struct mig *with_profile(const struct gpu *gpu, unsigned profile)
{
	for (unsigned i = 0; i < mig_count; i++)
		if (migs[i].parent == gpu && migs[i].profile == profile)
			return &migs[i];
	return NULL;
}

int nvmlDeviceGetGpuInstanceProfileInfo(const struct gpu *gpu, unsigned profile,
					struct gi_profile *info)
{
	struct mig *mig = with_profile(gpu, profile);

	if (!mig)
		return NOT_SUPPORTED;
	*info = (struct gi_profile){ .id = mig->profile_id, .memory_mib = mig->memory_mib };
	return ask(gpu, HANDLE);
}

#ifdef NVML_STUB_NO_PROFILE_NAMES
int nvmlDeviceGetAttributes(const struct gpu *gpu, struct attributes *found)
{
	return attributes(gpu, found, 6 * sizeof(unsigned));
}
#else
int nvmlDeviceGetAttributes_v2(const struct gpu *gpu, struct attributes *found)
{
	return attributes(gpu, found, sizeof *found);
}

int nvmlDeviceGetGpuInstanceProfileInfoV(const struct gpu *gpu, unsigned profile,
					 struct gi_profile_v2 *info)
{
	struct mig *mig = with_profile(gpu, profile);

	if (info->version != 0x02000098)
		return INVALID_ARGUMENT;
	if (!mig)
		return NOT_SUPPORTED;
	info->id = mig->profile_id;
	info->memory_mib = mig->memory_mib;
	strcpy(info->name, mig->profile_name);
	return ask(gpu, HANDLE);
}
#endif
#endif
