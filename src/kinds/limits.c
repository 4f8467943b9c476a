/*
 * Resource limits, all of them: a stub begins with sealpoint's. They are read and set by the
 * process itself, which needs no capability, where prlimit(2) on a process of another user needs
 * CAP_SYS_RESOURCE. Set after memory, descriptors, threads and pending signals: what the process
 * already had may be more than it may get.
 */
#include "kinds/registry.h"

#include "proc/capability.h"

#include "settings.pb-c.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const struct {
	const char *name, *label;
} resources[RLIM_NLIMITS] = {
        [RLIMIT_CPU] = {"RLIMIT_CPU", "set RLIMIT_CPU"},
        [RLIMIT_FSIZE] = {"RLIMIT_FSIZE", "set RLIMIT_FSIZE"},
        [RLIMIT_DATA] = {"RLIMIT_DATA", "set RLIMIT_DATA"},
        [RLIMIT_STACK] = {"RLIMIT_STACK", "set RLIMIT_STACK"},
        [RLIMIT_CORE] = {"RLIMIT_CORE", "set RLIMIT_CORE"},
        [RLIMIT_RSS] = {"RLIMIT_RSS", "set RLIMIT_RSS"},
        [RLIMIT_NPROC] = {"RLIMIT_NPROC", "set RLIMIT_NPROC"},
        [RLIMIT_NOFILE] = {"RLIMIT_NOFILE", "set RLIMIT_NOFILE"},
        [RLIMIT_MEMLOCK] = {"RLIMIT_MEMLOCK", "set RLIMIT_MEMLOCK"},
        [RLIMIT_AS] = {"RLIMIT_AS", "set RLIMIT_AS"},
        [RLIMIT_LOCKS] = {"RLIMIT_LOCKS", "set RLIMIT_LOCKS"},
        [RLIMIT_SIGPENDING] = {"RLIMIT_SIGPENDING", "set RLIMIT_SIGPENDING"},
        [RLIMIT_MSGQUEUE] = {"RLIMIT_MSGQUEUE", "set RLIMIT_MSGQUEUE"},
        [RLIMIT_NICE] = {"RLIMIT_NICE", "set RLIMIT_NICE"},
        [RLIMIT_RTPRIO] = {"RLIMIT_RTPRIO", "set RLIMIT_RTPRIO"},
        [RLIMIT_RTTIME] = {"RLIMIT_RTTIME", "set RLIMIT_RTTIME"},
};

static int ask(struct sp_facet_saver *saver, struct sp_error *err)
{
	remote_addr room = sp_batch_room(saver->remote, RLIM_NLIMITS * sizeof(struct rlimit64));

	for (unsigned i = 0; i < RLIM_NLIMITS; i++)
		sp_batch_call(saver->remote, "read the limits", SYS_prlimit64, 0, i, 0,
		              room + i * sizeof(struct rlimit64), 0, 0);
	saver->asked->room = room;
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__Limits message = SEALPOINT__LIMITS__INIT;
	Sealpoint__Limit items[RLIM_NLIMITS], *pointers[RLIM_NLIMITS];
	struct rlimit64 limits[RLIM_NLIMITS];
	int rc = sp_batch_read(saver->remote, saver->asked->room, limits, sizeof(limits), err);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < RLIM_NLIMITS; i++) {
		sealpoint__limit__init(&items[i]);
		items[i].resource = i;
		items[i].soft = limits[i].rlim_cur;
		items[i].hard = limits[i].rlim_max;
		pointers[i] = &items[i];
	}
	message.n_limits = RLIM_NLIMITS;
	message.limits = pointers;
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__Limits *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Limits *message =
	        sp_blob_unpack(body, &sealpoint__limits__descriptor, err);

	for (size_t i = 0; message && i < message->n_limits; i++)
		if (message->limits[i]->resource >= RLIM_NLIMITS) {
			sp_fail_damaged(err, "an impossible limit %u",
			                message->limits[i]->resource);
			return NULL;
		}
	return sp_steal_ptr(&message);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Limits *message = unpack(body, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_limits; i++) {
		const Sealpoint__Limit *item = message->limits[i];
		struct rlimit64 limit = {item->soft, item->hard};

		sp_batch_call(builder->remote, resources[item->resource].label, SYS_prlimit64, 0,
		              item->resource, sp_batch_put(builder->remote, &limit, sizeof(limit)),
		              0, 0, 0);
	}
	return 0;
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Limits *message = unpack(body, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_limits; i++) {
		const Sealpoint__Limit *item = message->limits[i];
		struct rlimit64 own;

		if (prlimit64(0, (int)item->resource, NULL, &own) < 0)
			return sp_fail_errno(err, errno, "cannot read %s",
			                     resources[item->resource].name);
		if (item->hard > own.rlim_max && !sp_capability_have(CAP_SYS_RESOURCE))
			return sp_fail(err, EPERM,
			               "its hard limit %s, %llu, is above sealpoint's own, %llu; "
			               "raise that (ulimit -H, prlimit(1)) or run sealpoint with "
			               "CAP_SYS_RESOURCE",
			               resources[item->resource].name,
			               (unsigned long long)item->hard,
			               (unsigned long long)own.rlim_max);
	}
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Limits *message = unpack(body, NULL);

	for (size_t i = 0; message && i < message->n_limits; i++)
		if (message->limits[i]->resource == RLIMIT_NOFILE)
			snprintf(text, size, "%llu open files",
			         (unsigned long long)message->limits[i]->soft);
}

const struct sp_facet sp_facet_limits = {
        .name = "limits",
        .title = "resource limits",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .ask = ask,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
