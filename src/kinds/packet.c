/*
 * Packet sockets: protocol, interface, options, what they are members of, filter, fanout group. Packets that wait to
 * be read are lost, as those that come while the program is gone. A ring in memory is refused: the kernel goes
 * through it from a place that it tells nobody. So is a fanout group that is ruled by a BPF program.
 */
#include "kinds/registry.h"

#include "kinds/sock_diag.h"
#include "kinds/socket_filter.h"
#include "kinds/socket_options.h"

#include "packet.pb-c.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/packet_diag.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define ADDRESS_MAX 32 /* of a network card, in the kernel */
#define TIMES_MAX 4096 /* that somebody adds the same membership */
#define UNIQUE_ID \
	(0x20U << 24) /* of a fanout: its id was chosen by the kernel. It is known by now */

static bool claims(const struct sp_open_file *file)
{
	return S_ISSOCK(file->stat.st_mode) && file->socket.domain == AF_PACKET;
}

/* --- what only sock_diag tells --- */

/* A socket's message in the making, and what it refers to. */
struct saving {
	Sealpoint__Packet message;
	struct sp_socket_options options;
	struct sp_array memberships; /* Sealpoint__PacketMembership * */
	char interface[IF_NAMESIZE];
	bool ring;
};

static void release_saving(struct saving *saving)
{
	for (size_t i = 0; i < saving->memberships.count; i++)
		protobuf_c_message_free_unpacked(sp_array_pointer(&saving->memberships, i), NULL);
	sp_array_release(&saving->memberships);
	sp_socket_options_release(&saving->options);
	free(saving->message.filter.data);
}

static void add_membership(struct saving *saving, const struct packet_diag_mclist *entry)
{
	Sealpoint__PacketMembership *membership = sp_alloc(sizeof(*membership));
	char name[IF_NAMESIZE] = "";
	size_t size = SP_COUNT_OF(entry->pdmc_addr);

	if (entry->pdmc_alen < size)
		size = entry->pdmc_alen;
	sealpoint__packet_membership__init(membership);
	membership->interface = sp_strdup(if_indextoname(entry->pdmc_index, name) ?: "");
	membership->type = entry->pdmc_type;
	membership->count = entry->pdmc_count;
	membership->address.data = sp_alloc(size + 1);
	membership->address.len = size;
	memcpy(membership->address.data, entry->pdmc_addr, size);
	*(Sealpoint__PacketMembership **)sp_array_push(&saving->memberships) = membership;
}

static void read_attribute(struct saving *saving, unsigned type, const void *payload, size_t size)
{
	const struct packet_diag_mclist *entries = payload;

	if (type == PACKET_DIAG_MCLIST)
		for (size_t i = 0; i < size / sizeof(*entries); i++)
			add_membership(saving, &entries[i]);
	if (type == PACKET_DIAG_RX_RING || type == PACKET_DIAG_TX_RING)
		saving->ring = true;
	if (type == PACKET_DIAG_FANOUT && size >= sizeof(uint32_t))
		saving->message.in_fanout = true;
}

/* Whose answer is looked for. */
struct wanted {
	uint32_t inode;
	struct saving *saving;
	bool found;
};

static int look(void *context, const struct nlmsghdr *header)
{
	struct wanted *wanted = context;
	const struct packet_diag_msg *message = NLMSG_DATA(header);
	size_t left;
	const struct rtattr *each = sp_sock_diag_attributes(header, sizeof(*message), &left);

	if (!each || message->pdiag_ino != wanted->inode)
		return 0;
	wanted->found = true;
	for (; RTA_OK(each, left); each = RTA_NEXT(each, left))
		read_attribute(wanted->saving, each->rta_type, RTA_DATA(each), RTA_PAYLOAD(each));
	return 0;
}

static int save_hidden(const struct sp_open_file *file, struct saving *saving, struct sp_error *err)
{
	struct {
		struct nlmsghdr header;
		struct packet_diag_req body;
	} request = {
	        .header = {.nlmsg_len = sizeof(request),
	                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                   .nlmsg_flags = NLM_F_DUMP},
	        .body = {.sdiag_family = AF_PACKET,
	                 .pdiag_show =
	                         PACKET_SHOW_MCLIST | PACKET_SHOW_RING_CFG | PACKET_SHOW_FANOUT,
	                 .pdiag_cookie = {UINT32_MAX, UINT32_MAX}},
	};
	struct wanted wanted = {.inode = (uint32_t)file->stat.st_ino, .saving = saving};
	int rc = sp_sock_diag(&request.header, look, &wanted);

	if (!rc && !wanted.found)
		rc = -ENOENT;
	return rc ? sp_fail_errno(err, -rc,
	                          "sock_diag does not tell of it (it may be in another network "
	                          "namespace, or the kernel have no CONFIG_PACKET_DIAG)")
	          : 0;
}

/* --- saving --- */

static int save_fanout(int fd, Sealpoint__Packet *message, struct sp_error *err)
{
	uint32_t fanout = 0, type;
	socklen_t size = sizeof(fanout);

	if (!message->in_fanout)
		return 0;
	if (getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &fanout, &size))
		return sp_fail_errno(err, errno, "cannot read its fanout group");
	type = fanout >> 16 & 0xff;
	if (type == PACKET_FANOUT_CBPF || type == PACKET_FANOUT_EBPF)
		return sp_fail(err, ENOTSUP,
		               "a BPF program rules its fanout group, and the kernel does not tell "
		               "that program; let the program leave the group");
	message->fanout = fanout & ~UNIQUE_ID;
	return 0;
}

static int save_address(int fd, struct saving *saving, struct sp_error *err)
{
	struct sockaddr_ll address = {0};
	socklen_t size = sizeof(address);

	if (getsockname(fd, (struct sockaddr *)&address, &size))
		return sp_fail_errno(err, errno, "cannot read its address");
	if (address.sll_ifindex &&
	    !if_indextoname((unsigned)address.sll_ifindex, saving->interface))
		return sp_fail_errno(err, errno, "cannot find the interface that it is bound to");
	saving->message.protocol = ntohs(address.sll_protocol);
	saving->message.interface = saving->interface;
	return 0;
}

static int refuse_ring(const struct saving *saving, struct sp_error *err)
{
	if (!saving->ring)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "it shares a ring of packets with the kernel (PACKET_RX_RING, "
	               "PACKET_TX_RING), which does not tell where it is in it; let the program "
	               "stop capturing first");
}

static void warn_of_waiting(const struct sp_file_saver *saver, const struct sp_open_file *file)
{
	int waiting = 0;

	if (!ioctl(file->fd, FIONREAD, &waiting) && waiting)
		sp_warn(saver->log,
		        "descriptor %d of process %d (%s): packets that wait to be read are lost",
		        file->number, file->pid, file->kind->title);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	struct saving saving sp_cleanup(release_saving) = {
	        .message = SEALPOINT__PACKET__INIT,
	        .memberships = SP_ARRAY_OF(Sealpoint__PacketMembership *),
	};
	Sealpoint__Packet *message = &saving.message;

	if (save_hidden(file, &saving, err) || refuse_ring(&saving, err) ||
	    save_fanout(file->fd, message, err) || save_address(file->fd, &saving, err) ||
	    sp_socket_filter_save(file->fd, &message->filter, err) ||
	    sp_socket_options_save(file->fd, &saving.options, err))
		return -err->code;
	warn_of_waiting(saver, file);
	message->type = (uint32_t)file->socket.type;
	message->memberships = saving.memberships.items;
	message->n_memberships = saving.memberships.count;
	message->options = saving.options.list;
	message->n_options = saving.options.count;
	sp_blob_pack(body, &message->base);
	return 0;
}

/* --- rebuilding --- */

static int find_interface(const char *name, int *index, struct sp_error *err)
{
	*index = *name ? (int)if_nametoindex(name) : 0;
	if (*name && !*index)
		return sp_fail(err, ENODEV, "there is no interface %s here", name);
	return 0;
}

static int join(int fd, const Sealpoint__PacketMembership *membership, struct sp_error *err)
{
	struct { /* struct packet_mreq_max of the kernel */
		int interface;
		unsigned short type, size;
		uint8_t address[ADDRESS_MAX];
	} joining = {.type = (unsigned short)membership->type,
	             .size = (unsigned short)membership->address.len};

	if (find_interface(membership->interface, &joining.interface, err))
		return -err->code;
	if (membership->address.len)
		memcpy(joining.address, membership->address.data, membership->address.len);
	for (uint32_t i = 0; i < membership->count; i++)
		if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &joining, sizeof(joining)))
			return sp_fail_errno(err, errno, "cannot join on interface %s",
			                     membership->interface);
	return 0;
}

static int bind_again(int fd, const Sealpoint__Packet *message, struct sp_error *err)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
	                              .sll_protocol = htons((uint16_t)message->protocol)};

	if (find_interface(message->interface, &address.sll_ifindex, err))
		return -err->code;
	if ((address.sll_protocol || address.sll_ifindex) &&
	    bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return sp_fail_errno(err, errno, "cannot bind to interface %s", message->interface);
	if (message->in_fanout &&
	    setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &message->fanout, sizeof(message->fanout)))
		return sp_fail_errno(err, errno, "cannot join fanout group %u",
		                     message->fanout & 0xffff);
	return 0;
}

static int open_packet(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                       struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Packet *message =
	        sp_blob_unpack(file->body, &sealpoint__packet__descriptor, err);
	sp_cleanup_close int made = -1;

	if (!message)
		return -EBADMSG;
	/* Without a protocol, so that nothing comes before the filter is there. */
	made = socket(AF_PACKET, (int)message->type | SOCK_CLOEXEC, 0);
	if (made < 0)
		return sp_fail_errno(err, errno, "cannot make a socket (CAP_NET_RAW)");
	if (sp_socket_filter_attach(made, &message->filter, err) < 0 ||
	    sp_socket_options_apply(made, message->options, message->n_options, err) < 0)
		return -err->code;
	for (size_t i = 0; i < message->n_memberships; i++)
		if (join(made, message->memberships[i], err))
			return -err->code;
	if (bind_again(made, message, err))
		return -err->code;
	*fd = sp_steal_fd(&made);
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Packet *message =
	        sp_blob_unpack(body, &sealpoint__packet__descriptor, NULL);

	if (message)
		snprintf(text, size, "protocol %#06x, interface %s", message->protocol,
		         *message->interface ? message->interface : "any");
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Packet *message =
	        sp_blob_unpack(file->body, &sealpoint__packet__descriptor, err);
	bool valid;

	if (!message)
		return -EBADMSG;
	valid = (message->type == SOCK_RAW || message->type == SOCK_DGRAM) &&
	        message->protocol <= UINT16_MAX;
	for (size_t i = 0; i < message->n_memberships; i++)
		valid &= message->memberships[i]->address.len <= ADDRESS_MAX &&
		         message->memberships[i]->count <= TIMES_MAX;
	if (!valid)
		return sp_fail_damaged(err, "an impossible packet socket");
	if (sp_socket_filter_check(&message->filter, err) < 0)
		return -err->code;
	return sp_socket_options_check(message->options, message->n_options, err);
}

const struct sp_file_kind sp_kind_packet = {
        .name = "packet",
        .title = "packet socket",
        .claims = claims,
        .save = save,
        .open = open_packet,
        .describe = describe,
        .check = check,
};
