// SPDX-License-Identifier: Apache-2.0
// swaproot PATH: change the root directory of this process to PATH and back, without end.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int root = open("/", O_RDONLY | O_DIRECTORY);

	if (argc != 2 || root < 0)
		return 2;
	for (;;) {
		if (chroot(argv[1]) || fchdir(root) || chroot(".")) {
			perror(argv[1]);
			return 1;
		}
	}
}
