/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container sees from inside, as one JSON object on standard output.
 *
 *   probe [PATH | --try MAJOR:MINOR | --run WORD... ';']...
 *
 * "nodes" are the device nodes below /dev and what open() says of each; "paths" the arguments;
 * "tries" character devices that the probe makes itself, so that a device cgroup is asked about
 * devices that have no node; "runs" commands with their output. Bytes that are not ASCII are
 * written as \u00XX, so that Python gets them back with encode("latin-1").
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST (1 << 20)

extern char **environ;

static void text(const char *bytes, size_t length)
{
	putchar('"');
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)bytes[i];
		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void words(const char *bytes)
{
	text(bytes, strlen(bytes));
}

static const char *outcome(int error)
{
	switch (error) {
	case 0: return "OK";
	case EPERM: return "EPERM";
	case EACCES: return "EACCES";
	case ENXIO: return "ENXIO";
	case ENODEV: return "ENODEV";
	case ENOENT: return "ENOENT";
	case EIO: return "EIO";
	case EBUSY: return "EBUSY";
	case EROFS: return "EROFS";
	default: return strerror(error);
	}
}

static const char *opened(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return outcome(errno);
	close(fd);
	return "OK";
}

static const char *kind(mode_t mode)
{
	if (S_ISREG(mode)) return "file";
	if (S_ISDIR(mode)) return "directory";
	if (S_ISLNK(mode)) return "link";
	if (S_ISCHR(mode)) return "char";
	if (S_ISBLK(mode)) return "block";
	if (S_ISSOCK(mode)) return "socket";
	return "fifo";
}

static void status(const char *path, const struct stat *st)
{
	printf("{\"path\":");
	words(path);
	printf(",\"kind\":\"%s\",\"mode\":%u,\"uid\":%u,\"gid\":%u,\"size\":%lld,\"nlink\":%lu",
	       kind(st->st_mode), st->st_mode & 07777, st->st_uid, st->st_gid,
	       (long long)st->st_size, (unsigned long)st->st_nlink);
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		printf(",\"major\":%u,\"minor\":%u", major(st->st_rdev), minor(st->st_rdev));
}

static char *content(int fd, size_t *length)
{
	char *all = malloc(LARGEST);
	ssize_t got;
	*length = 0;
	while (*length < LARGEST && (got = read(fd, all + *length, LARGEST - *length)) > 0)
		*length += (size_t)got;
	return all;
}

static int first_node = 1;

static void nodes(const char *directory)
{
	DIR *open_directory = opendir(directory);
	struct dirent *item;
	if (!open_directory)
		return;
	while ((item = readdir(open_directory))) {
		char path[4096];
		struct stat st;
		if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, ".."))
			continue;
		snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
		if (lstat(path, &st))
			continue;
		if (S_ISDIR(st.st_mode))
			nodes(path);
		if (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))
			continue;
		if (!first_node)
			putchar(',');
		first_node = 0;
		status(path, &st);
		/* Opening a pty master or the console changes it: those are only listed. */
		int terminal = strstr(path, "/pts/") || !strcmp(path, "/dev/ptmx") ||
			       !strcmp(path, "/dev/console") || !strcmp(path, "/dev/tty");
		printf(",\"open\":\"%s\"}", terminal ? "" : opened(path));
	}
	closedir(open_directory);
}

static void entries(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *item;
	int first = 1;
	if (!directory)
		return;
	printf(",\"entries\":[");
	while ((item = readdir(directory))) {
		if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, ".."))
			continue;
		if (!first)
			putchar(',');
		first = 0;
		words(item->d_name);
	}
	putchar(']');
	closedir(directory);
}

static void one_path(const char *path)
{
	struct stat st;
	if (lstat(path, &st)) {
		printf("{\"path\":");
		words(path);
		printf(",\"kind\":\"missing\",\"error\":\"%s\"}", outcome(errno));
		return;
	}
	status(path, &st);
	if (S_ISLNK(st.st_mode)) {
		char target[4096];
		ssize_t length = readlink(path, target, sizeof target);
		printf(",\"target\":");
		text(target, length < 0 ? 0 : (size_t)length);
	}
	if (S_ISDIR(st.st_mode))
		entries(path);
	if (S_ISREG(st.st_mode) || (S_ISLNK(st.st_mode) && !stat(path, &st) && S_ISREG(st.st_mode))) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			size_t length;
			char *all = content(fd, &length);
			printf(",\"content\":");
			text(all, length);
			free(all);
			close(fd);
		}
	}
	putchar('}');
}

static void one_try(const char *numbers)
{
	char path[64];
	unsigned int high = 0, low = 0;
	sscanf(numbers, "%u:%u", &high, &low);
	snprintf(path, sizeof path, "/dev/.probe-%u-%u", high, low);
	words(numbers);
	putchar(':');
	unlink(path);
	if (mknod(path, S_IFCHR | 0600, makedev(high, low))) {
		printf("\"mknod %s\"", outcome(errno));
		return;
	}
	printf("\"%s\"", opened(path));
	unlink(path);
}

static void one_run(char **command)
{
	int out[2];
	size_t length;
	int ended = 0;
	fflush(stdout);
	if (pipe(out))
		exit(3);
	pid_t child = fork();
	if (child == 0) {
		dup2(out[1], 1);
		dup2(out[1], 2);
		close(out[0]);
		close(out[1]);
		execvp(command[0], command);
		dprintf(2, "%s: %s", command[0], strerror(errno));
		_exit(127);
	}
	close(out[1]);
	char *all = content(out[0], &length);
	close(out[0]);
	waitpid(child, &ended, 0);
	printf("{\"rc\":%d,\"output\":", WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended));
	text(all, length);
	putchar('}');
	free(all);
}

enum wanted { PATHS, TRIES, RUNS };

static void arguments(int count, char **given, enum wanted wanted)
{
	int first = 1;
	for (int i = 1; i < count; i++) {
		enum wanted found = PATHS;
		char **at = given + i;
		if (!strcmp(given[i], "--try") && i + 1 < count) {
			found = TRIES;
			at = given + ++i;
		} else if (!strcmp(given[i], "--run")) {
			found = RUNS;
			at = given + i + 1;
			while (++i < count && strcmp(given[i], ";"))
				;
			if (i < count)
				given[i] = NULL;
		}
		if (found == wanted) {
			if (!first)
				putchar(',');
			first = 0;
			if (wanted == PATHS)
				one_path(*at);
			else if (wanted == TRIES)
				one_try(*at);
			else
				one_run(at);
		}
		if (found == RUNS && i < count)
			given[i] = ";";
	}
}

static void mountinfo(void)
{
	size_t length = 0;
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	char *all = fd < 0 ? calloc(1, 1) : content(fd, &length);
	text(all, length);
	free(all);
}

int main(int count, char **given)
{
	gid_t groups[256];
	int held = getgroups(256, groups);
	printf("{\"uid\":%u,\"gid\":%u,\"groups\":[", getuid(), getgid());
	for (int i = 0; i < held; i++)
		printf("%s%u", i ? "," : "", groups[i]);
	printf("],\"env\":[");
	for (char **at = environ; *at; at++) {
		if (at != environ)
			putchar(',');
		words(*at);
	}
	printf("],\"nodes\":[");
	nodes("/dev");
	printf("],\"paths\":[");
	arguments(count, given, PATHS);
	printf("],\"tries\":{");
	arguments(count, given, TRIES);
	printf("},\"runs\":[");
	arguments(count, given, RUNS);
	printf("],\"mountinfo\":");
	mountinfo();
	printf("}\n");
	return 0;
}
