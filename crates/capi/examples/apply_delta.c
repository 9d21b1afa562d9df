/* Makes the new image, a file or a block device, from the old one and a delta that comes from standard input. With a digest,
 * which a signature could be of, only that delta is applied. What NEW had before stays if OLD is the wrong image.
 *
 * cc apply_delta.c $(pkg-config --cflags --libs ferofs) -o apply_delta
 * ./apply_delta OLD NEW MEMORY [DIGEST] < DELTA */

#include <errno.h>
#include <fcntl.h>
#include <ferofs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct update {
	int delta, new_image;
	uint64_t new_size;
	const char *new_path, *digest;
};

/* Bytes of a file or a block device, whose st_size is 0; -1 after an error. */
static int64_t size_of(int descriptor)
{
	off_t size = lseek(descriptor, 0, SEEK_END);

	return size < 0 || lseek(descriptor, 0, SEEK_SET) < 0 ? -1 : (int64_t)size;
}

static int is_device(int descriptor)
{
	struct stat st;

	return fstat(descriptor, &st) == 0 && S_ISBLK(st.st_mode);
}

static int read_old(void *context, uint64_t position, void *buffer, size_t length)
{
	char *to = buffer;

	while (length > 0) {
		ssize_t got = pread(*(int *)context, to, length, (off_t)position);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		to += got;
		position += (uint64_t)got;
		length -= (size_t)got;
	}
	return 0;
}

static ssize_t read_delta(void *context, void *buffer, size_t length)
{
	const struct update *update = context;
	ssize_t got;

	do
		got = read(update->delta, buffer, length);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* The new image is opened only if the delta is the right one, and not truncated: the old image is compared after this. */
static int accept_delta(void *context, const struct ferofs_delta_info *info)
{
	struct update *update = context;
	struct stat st;
	int flags = O_CREAT;

	fprintf(stderr, "%llu bytes, digest %s\n", (unsigned long long)info->new_size, info->digest);
	if (update->digest && strcmp(update->digest, info->digest))
		return -EPERM;
	/* Linux refuses to open a mounted device exclusively. */
	if (stat(update->new_path, &st) == 0 && S_ISBLK(st.st_mode))
		flags = O_EXCL;
	update->new_size = info->new_size;
	update->new_image = open(update->new_path, O_WRONLY | O_CLOEXEC | flags, 0666);
	if (update->new_image < 0)
		return -errno;
	if (is_device(update->new_image) && size_of(update->new_image) < (int64_t)info->new_size)
		return -ENOSPC;
	return 0;
}

static int write_new(void *context, const void *buffer, size_t length)
{
	const struct update *update = context;
	const char *from = buffer;

	while (length > 0) {
		ssize_t put = write(update->new_image, from, length);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		from += put;
		length -= (size_t)put;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct update update = { STDIN_FILENO, -1, 0, NULL, NULL };
	struct ferofs_delta delta = { &update, 0, read_delta, accept_delta, write_new };
	struct ferofs_source old = { 0 };
	int64_t old_size;
	int descriptor, result;

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: %s OLD NEW MEMORY [DIGEST] < DELTA\n", argv[0]);
		return 2;
	}
	descriptor = open(argv[1], O_RDONLY | O_CLOEXEC);
	old_size = descriptor < 0 ? -1 : size_of(descriptor);
	if (old_size < 0) {
		perror(argv[1]);
		return 1;
	}
	update.new_path = argv[2];
	delta.memory_limit = strtoull(argv[3], NULL, 10);
	update.digest = argv[4];
	old.context = &descriptor;
	old.size = (uint64_t)old_size;
	old.read = read_old;
	result = ferofs_delta_apply(&old, &delta);
	if (result < 0)
		fprintf(stderr, "%s (%s)\n", ferofs_error_message(), strerror(-result));
	else if ((!is_device(update.new_image) && ftruncate(update.new_image, (off_t)update.new_size) < 0) ||
		 fsync(update.new_image) < 0) {
		result = -errno;
		perror(argv[2]);
	}
	if (update.new_image >= 0)
		close(update.new_image);
	close(descriptor);
	return result < 0;
}
