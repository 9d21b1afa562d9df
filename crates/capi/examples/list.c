/* Lists an EROFS image, and checks what it reads against itself through a source of callbacks.
 *
 * cc list.c -lferofs -o list && ./list IMAGE */

#include <errno.h>
#include <ferofs.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(const char *what, long result)
{
	fprintf(stderr, "%s: %s (%s)\n", what, ferofs_error_message(), strerror((int)-result));
	return 1;
}

/* A sum of all bytes of a file, read in pieces. */
static long sum_of(const struct ferofs_image *image, uint64_t nid, unsigned long *sum)
{
	unsigned char buffer[4000];
	uint64_t offset = 0;
	long length;

	while ((length = ferofs_pread(image, nid, buffer, sizeof(buffer), offset)) > 0) {
		for (long i = 0; i < length; i++)
			*sum = *sum * 31 + buffer[i];
		offset += (uint64_t)length;
	}
	return length;
}

static int list(const struct ferofs_image *image, uint64_t dir, const char *path)
{
	struct ferofs_dirent entry;
	uint64_t cookie = 0;
	int more;

	while ((more = ferofs_readdir(image, dir, &cookie, &entry)) == 1) {
		struct ferofs_stat st;
		char child[4096], extra[4200] = "";
		long result;

		if (!strcmp(entry.name, ".") || !strcmp(entry.name, ".."))
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry.name);
		result = ferofs_stat_inode(image, entry.nid, &st);
		if (result < 0)
			return failed(child, result);
		if (S_ISREG(st.mode)) {
			unsigned long sum = 0;

			result = sum_of(image, entry.nid, &sum);
			if (result < 0)
				return failed(child, result);
			snprintf(extra, sizeof(extra), " sum %lx", sum);
		} else if (S_ISLNK(st.mode)) {
			char target[4096];

			result = ferofs_readlink(image, entry.nid, target, sizeof(target));
			if (result < 0)
				return failed(child, result);
			snprintf(extra, sizeof(extra), " -> %.*s", (int)result, target);
		}
		printf("%o %u:%u %llu %s%s", st.mode, st.uid, st.gid, (unsigned long long)st.size, child, extra);
		result = ferofs_listxattr(image, entry.nid, NULL, 0);
		if (result > 0) {
			char *names = malloc((size_t)result);
			long length = ferofs_listxattr(image, entry.nid, names, (size_t)result);

			for (long at = 0; at < length; at += (long)strlen(names + at) + 1) {
				char value[256];
				long size = ferofs_getxattr(image, entry.nid, names + at, value, sizeof(value));

				printf(" %s=%.*s", names + at, size > 0 ? (int)size : 0, value);
			}
			free(names);
		}
		putchar('\n');
		if (S_ISDIR(st.mode) && list(image, entry.nid, child))
			return 1;
	}
	return more < 0 ? failed(path, more) : 0;
}

static int read_from_descriptor(void *context, uint64_t position, void *buffer, size_t length)
{
	ssize_t got = pread(*(int *)context, buffer, length, (off_t)position);

	if (got < 0)
		return -errno;
	return (size_t)got == length ? 0 : -EIO;
}

static void close_descriptor(void *context)
{
	close(*(int *)context);
}

int main(int argc, char **argv)
{
	struct ferofs_image *image;
	struct ferofs_source source;
	struct stat st;
	uint64_t nid;
	int descriptor, result;

	if (argc != 2) {
		fprintf(stderr, "usage: %s IMAGE\n", argv[0]);
		return 2;
	}
	result = ferofs_open(argv[1], 0, &image);
	if (result < 0)
		return failed(argv[1], result);
	if (list(image, ferofs_root(image), ""))
		return 1;
	result = ferofs_lookup(image, "no such file", 1, &nid);
	if (result != -ENOENT)
		return failed("a file that does not exist", result);
	printf("error: %s\n", ferofs_error_message());
	ferofs_close(image);

	/* The same image, read by this program. */
	descriptor = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (descriptor < 0 || fstat(descriptor, &st) < 0)
		return 1;
	source = (struct ferofs_source){ &descriptor, (uint64_t)st.st_size, read_from_descriptor, close_descriptor };
	result = ferofs_open_source(&source, &image);
	if (result < 0)
		return failed(argv[1], result);
	result = list(image, ferofs_root(image), "");
	ferofs_close(image);
	return result;
}
