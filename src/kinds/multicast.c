/* Multicast groups of sockets: see multicast.h. */
#include "kinds/multicast.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "kinds/inet_socket.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#define SOURCES_MAX 1024

/* A group that somebody on this machine is in. */
struct candidate {
	unsigned interface;
	union sp_inet_address group;
};

static int level_of(const union sp_inet_address *address)
{
	return address->any.sa_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
}

/* --- which groups there are --- */

/* "INDEX NAME : COUNT QUERIER", and for each group a line that begins with blanks and its address. */
static void parse_v4(char *text, struct sp_array *candidates)
{
	unsigned interface = 0;

	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		struct candidate found = {.group.v4.sin_family = AF_INET};

		if (line[0] >= '0' && line[0] <= '9') {
			interface = (unsigned)strtoul(line, NULL, 10);
		} else if (line[0] == '\t') {
			found.interface = interface;
			found.group.v4.sin_addr.s_addr = (uint32_t)strtoul(line, NULL, 16);
			sp_array_append(candidates, &found);
		}
	}
}

/* "INDEX NAME ADDRESS ..." */
static void parse_v6(char *text, struct sp_array *candidates)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		struct candidate found = {.group.v6.sin6_family = AF_INET6};
		char address[33] = "";
		bool whole = sscanf(line, "%u %*s %32s", &found.interface, address) == 2 &&
		             strlen(address) == 32;

		for (size_t i = 0; i < 16 && whole; i++)
			whole = sscanf(&address[2 * i], "%2hhx",
			               &found.group.v6.sin6_addr.s6_addr[i]) == 1;
		if (whole)
			sp_array_append(candidates, &found);
	}
}

/* A kernel without one of the two has no such groups. */
static void read_candidates(const char *path, void (*parse)(char *, struct sp_array *),
                            struct sp_array *candidates)
{
	sp_cleanup_free char *text = NULL;
	size_t size;

	if (!sp_read_file(AT_FDCWD, path, &text, &size, NULL))
		parse(text, candidates);
}

/* --- saving --- */

static ProtobufCBinaryData copy_address(const struct sockaddr_storage *address)
{
	union sp_inet_address copy;
	ProtobufCBinaryData bytes;

	memcpy(&copy, address, sizeof(copy));
	bytes = sp_inet_address_bytes(&copy);
	bytes.data = memcpy(sp_alloc(bytes.len), &copy, bytes.len);
	return bytes;
}

static struct group_filter *make_filter(unsigned interface, const union sp_inet_address *group,
                                        size_t sources)
{
	struct group_filter *filter = sp_alloc_zeroed(1, GROUP_FILTER_SIZE(sources));

	filter->gf_interface = interface;
	memcpy(&filter->gf_group, group, sizeof(*group));
	filter->gf_numsrc = (uint32_t)sources;
	return filter;
}

static void add_group(const struct group_filter *filter, const char *interface,
                      struct sp_array *groups)
{
	Sealpoint__MulticastGroup *group = sp_alloc(sizeof(*group));

	sealpoint__multicast_group__init(group);
	group->interface = sp_strdup(interface);
	group->address = copy_address(&filter->gf_group);
	group->include = filter->gf_fmode == MCAST_INCLUDE;
	group->sources = sp_alloc((filter->gf_numsrc + 1) * sizeof(*group->sources));
	for (; group->n_sources < filter->gf_numsrc; group->n_sources++)
		group->sources[group->n_sources] =
		        copy_address(&filter->gf_slist[group->n_sources]);
	*(Sealpoint__MulticastGroup **)sp_array_push(groups) = group;
}

int sp_multicast_save(int fd, struct sp_array *groups, struct sp_error *err)
{
	sp_cleanup_array struct sp_array candidates = SP_ARRAY_OF(struct candidate);

	read_candidates("/proc/net/igmp", parse_v4, &candidates);
	if (sp_socket_number(fd, SO_DOMAIN) == AF_INET6)
		read_candidates("/proc/net/igmp6", parse_v6, &candidates);
	for (size_t i = 0; i < candidates.count; i++) {
		const struct candidate *candidate = sp_array_at(&candidates, i);
		sp_cleanup_free struct group_filter *filter =
		        make_filter(candidate->interface, &candidate->group, SOURCES_MAX);
		socklen_t size = GROUP_FILTER_SIZE(SOURCES_MAX);
		char name[IF_NAMESIZE];

		if (getsockopt(fd, level_of(&candidate->group), MCAST_MSFILTER, filter, &size))
			continue;
		if (filter->gf_numsrc > SOURCES_MAX || !if_indextoname(candidate->interface, name))
			return sp_fail(err, ENOTSUP,
			               "it is in a multicast group with %u sources, more than "
			               "sealpoint can save; let the program leave it first",
			               filter->gf_numsrc);
		add_group(filter, name, groups);
	}
	return 0;
}

void sp_multicast_release(struct sp_array *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		protobuf_c_message_free_unpacked(sp_array_pointer(groups, i), NULL);
	sp_array_release(groups);
}

/* --- joining again --- */

int sp_multicast_join(int fd, const Sealpoint__MulticastGroup *group, struct sp_error *err)
{
	struct group_req request = {.gr_interface = if_nametoindex(group->interface)};
	sp_cleanup_free struct group_filter *filter = NULL;
	union sp_inet_address address = {0};
	char text[SP_INET_TEXT];

	memcpy(&address, group->address.data, group->address.len);
	memcpy(&request.gr_group, &address, sizeof(address));
	sp_inet_address_text(&address, text);
	if (!request.gr_interface)
		return sp_fail(err, ENODEV,
		               "it is in the multicast group %s of interface %s, which is not here",
		               text, group->interface);
	if (setsockopt(fd, level_of(&address), MCAST_JOIN_GROUP, &request, sizeof(request)))
		return sp_fail_errno(err, errno, "cannot join the multicast group %s", text);
	if (!group->include && !group->n_sources)
		return 0;
	filter = make_filter(request.gr_interface, &address, group->n_sources);
	filter->gf_fmode = group->include ? MCAST_INCLUDE : MCAST_EXCLUDE;
	for (size_t i = 0; i < group->n_sources; i++)
		memcpy(&filter->gf_slist[i], group->sources[i].data, group->sources[i].len);
	if (setsockopt(fd, level_of(&address), MCAST_MSFILTER, filter,
	               (socklen_t)GROUP_FILTER_SIZE(group->n_sources)))
		return sp_fail_errno(err, errno, "cannot set the sources of the multicast group %s",
		                     text);
	return 0;
}

static bool is_address(const ProtobufCBinaryData *bytes)
{
	return sp_inet_address_valid(bytes, AF_INET) || sp_inet_address_valid(bytes, AF_INET6);
}

int sp_multicast_check(const Sealpoint__MulticastGroup *group, struct sp_error *err)
{
	bool valid = is_address(&group->address) && group->n_sources <= SOURCES_MAX;

	for (size_t i = 0; i < group->n_sources && valid; i++)
		valid = is_address(&group->sources[i]);
	return valid ? 0 : sp_fail_damaged(err, "an impossible multicast group");
}
