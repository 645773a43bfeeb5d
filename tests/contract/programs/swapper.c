// SPDX-License-Identifier: Apache-2.0
// swapper COUNTER STOP OPERATION... [-- OPERATION...]...
//
// Change files without end, each group of operations in a thread of its own:
//
//   x:A:B          exchange A and B (renameat2); a stopped swapper has done it an even number of times
//   n:PATH:TARGET  make PATH a device node, a pipe, a link to TARGET, a directory, a file, nothing
//   m:SOURCE:PATH  bind SOURCE over PATH, and unmount it
//   t:PATH:        mount a tmpfs over PATH, and unmount it
//   g:PATH:        append to PATH, and truncate it at 1 MiB
//   d:DIR:         make files in DIR, up to 5000, and remove them
//
// The file COUNTER has the number of changes, as 8 bytes. If the file STOP exists, the program stops
// and sleeps; the file STOP.done then has one byte for each thread.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MOST 32
#define FILES 5000

struct group {
	char **words;
	int count;
	unsigned seed;
};

static uint64_t *changes;
static const char *stop;

static void count(int failed)
{
	if (!failed)
		__atomic_add_fetch(changes, 1, __ATOMIC_RELAXED);
}

static void pause_for(struct group *group, unsigned most)
{
	usleep(rand_r(&group->seed) % most);
}

static void remake(struct group *group, const char *path, const char *target)
{
	int failed;

	if (unlink(path))
		rmdir(path);
	switch (rand_r(&group->seed) % 6) {
	case 0:
		failed = mknod(path, S_IFCHR | 0666, makedev(1, 3));
		break;
	case 1:
		failed = mkfifo(path, 0666);
		break;
	case 2:
		failed = symlink(target, path);
		break;
	case 3:
		failed = mkdir(path, 0755);
		break;
	case 4:
		failed = mknod(path, S_IFREG | 0666, 0);
		break;
	default:
		failed = 0;
	}
	count(failed);
}

static void mount_over(struct group *group, const char *source, const char *path)
{
	int failed = *source ? mount(source, path, "", MS_BIND, NULL)
			     : mount("tmpfs", path, "tmpfs", 0, NULL);

	count(failed);
	pause_for(group, 2000);
	if (!failed)
		umount2(path, MNT_DETACH);
}

static void grow(const char *path)
{
	static const char data[4096];
	struct stat found;
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0644);

	if (fd < 0)
		return;
	if (!fstat(fd, &found) && found.st_size > 1 << 20 && ftruncate(fd, 0))
		perror(path);
	count(write(fd, data, sizeof(data)) < 0);
	close(fd);
}

static void fill(const char *directory, unsigned long step)
{
	char path[8192];
	unsigned long number = step % (2 * FILES);

	snprintf(path, sizeof(path), "%s/file-%lu", directory, number % FILES);
	count(number < FILES ? mknod(path, S_IFREG | 0644, 0) : unlink(path));
}

static void change(struct group *group, char *word, unsigned long step)
{
	char first[4096];
	char *second;

	snprintf(first, sizeof(first), "%s", word + 2);
	second = strchr(first, ':');
	if (!second)
		return;
	*second++ = 0;
	switch (word[0]) {
	case 'x':
		for (int twice = 0; twice < 2; twice++) {
			count(renameat2(AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE));
			pause_for(group, 400);
		}
		break;
	case 'n':
		remake(group, first, second);
		break;
	case 'm':
		mount_over(group, first, second);
		break;
	case 't':
		mount_over(group, "", first);
		break;
	case 'g':
		grow(first);
		break;
	default:
		fill(first, step);
	}
}

static void *work(void *argument)
{
	struct group *group = argument;
	char path[4096];
	int done;

	for (unsigned long step = 0; access(stop, F_OK); step++)
		for (int number = 0; number < group->count; number++)
			change(group, group->words[number], step);
	snprintf(path, sizeof(path), "%s.done", stop);
	done = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (done < 0 || write(done, "x", 1) != 1)
		perror(path);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct group groups[MOST];
	static pthread_t threads[MOST];
	int used = 0;
	int fd;

	if (argc < 4)
		return 2;
	fd = open(argv[1], O_RDWR | O_CREAT, 0644);
	if (fd < 0 || ftruncate(fd, sizeof(*changes)))
		return 1;
	changes = mmap(NULL, sizeof(*changes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (changes == MAP_FAILED)
		return 1;
	stop = argv[2];
	umask(0);
	for (int number = 3; number < argc && used < MOST; number++) {
		struct group *group = &groups[used];

		if (!strcmp(argv[number], "--")) {
			used++;
			continue;
		}
		if (!group->count)
			group->words = argv + number;
		group->count++;
		group->seed = used + 1;
	}
	for (int number = 0; number <= used; number++)
		if (pthread_create(&threads[number], NULL, work, &groups[number]))
			return 1;
	for (;;)
		pause();
}
