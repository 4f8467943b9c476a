/*
 * Makes a checkpoint that comes from elsewhere: rewrites one item of a manifest, with correct
 * checksums, so that what is refused is the item and not the damage.
 *
 *	edit_manifest DIR ITEM VALUE
 *
 *	version_major, version_minor, page_size, arch	the value instead of what is there
 *	cpu_feature	the value instead of the first one
 *	cpu_features	none: all removed
 *	cpu_xfeatures	bits to add
 */
#include "base/error.h"
#include "image/checkpoint.h"

#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Sealpoint__Manifest *read_manifest(int dirfd)
{
	struct sp_record_reader reader;
	struct sp_record record;
	struct sp_error error = {0};
	ProtobufCMessage *message = NULL;

	if (sp_record_reader_open(&reader, dirfd, SP_IMAGE_MANIFEST, &error) == 0 &&
	    sp_record_next(&reader, &record, &error) == 1)
		message = sp_record_unpack(&reader, &record, &sealpoint__manifest__descriptor,
		                           &error);
	if (!message)
		errx(1, "%s", error.message);
	sp_record_reader_close(&reader);
	return (Sealpoint__Manifest *)message;
}

static void write_manifest(int dirfd, const Sealpoint__Manifest *manifest)
{
	struct sp_record_writer writer;
	struct sp_error error = {0};

	if (unlinkat(dirfd, SP_IMAGE_MANIFEST, 0) != 0)
		err(1, SP_IMAGE_MANIFEST);
	if (sp_record_writer_open(&writer, dirfd, SP_IMAGE_MANIFEST, &error) != 0 ||
	    sp_record_write(&writer, SP_RECORD_MANIFEST, &manifest->base, &error) != 0 ||
	    sp_record_writer_finish(&writer, &error) != 0)
		errx(1, "%s", error.message);
}

int main(int argc, char **argv)
{
	int dirfd = argc == 4 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	Sealpoint__Manifest *manifest;
	unsigned number;

	if (dirfd < 0)
		errx(2, "usage: edit_manifest DIR ITEM VALUE");
	manifest = read_manifest(dirfd);
	number = (unsigned)strtoul(argv[3], NULL, 10);
	if (strcmp(argv[2], "version_major") == 0)
		manifest->version_major = number;
	else if (strcmp(argv[2], "version_minor") == 0)
		manifest->version_minor = number;
	else if (strcmp(argv[2], "page_size") == 0)
		manifest->page_size = number;
	else if (strcmp(argv[2], "cpu_feature") == 0 && manifest->n_cpu_features > 0)
		manifest->cpu_features[0] = argv[3];
	else if (strcmp(argv[2], "cpu_xfeatures") == 0)
		manifest->cpu_xfeatures |= number;
	else if (strcmp(argv[2], "cpu_features") == 0 && strcmp(argv[3], "none") == 0)
		manifest->n_cpu_features = 0;
	else if (strcmp(argv[2], "arch") == 0)
		manifest->arch = argv[3];
	else
		errx(2, "no such item: %s", argv[2]);
	write_manifest(dirfd, manifest);
	return 0;
}
