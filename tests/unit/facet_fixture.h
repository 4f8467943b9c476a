/*
 * Facets are tested as they are used: what was saved of one process is rebuilt in a fresh one,
 * which is then saved in its turn. Both must give the same bytes, and a process that was not
 * prepared must give others.
 */
#ifndef SEALPOINT_TESTS_FACET_FIXTURE_H
#define SEALPOINT_TESTS_FACET_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kinds/registry.h"
#include "proc/status.h"

#include "signals.pb-c.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/** A child process, stopped and under control. */
struct held {
	struct sp_process process;
	struct sp_remote remote;
};

static struct sp_kind_options facet_options;
static struct sp_log facet_log = {.quiet = true};

/** Forks a child that does `prepare` (may be NULL) and sleeps, and takes hold of it. */
static inline void hold_child(struct held *held, void (*prepare)(void))
{
	struct sp_foothold foothold = {0};
	struct sp_error err = {};
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing behind */
		if (prepare)
			prepare();
		if (write(ready[1], "r", 1) != 1)
			_exit(98);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail_msg("the child could not prepare itself");
	close(ready[0]);
	if (sp_foothold_find(pid, (struct sp_range){0}, &foothold, &err) < 0 ||
	    sp_process_seize(&held->process, pid, sp_now_ns() + 10000000000ULL, &err) < 0 ||
	    sp_remote_open(&held->remote, &held->process, sp_process_leader(&held->process),
	                   &foothold, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void kill_child(struct held *held)
{
	sp_remote_close(&held->remote, NULL);
	sp_process_release(&held->process, SP_RELEASE_KILL);
	sp_process_forget(&held->process);
}

static inline int save_facet(struct held *held, const struct sp_facet *facet, struct sp_blob *body,
                             struct sp_error *err)
{
	struct sp_facet_saver saver = {
	        .process = &held->process,
	        .thread = held->remote.driver,
	        .remote = &held->remote,
	        .options = &facet_options,
	        .log = &facet_log,
	};
	struct sp_asked asked = {};
	char *status = NULL;
	int ret;

	*body = (struct sp_blob){};
	*err = (struct sp_error){};
	assert_int_equal(sp_status_read(held->process.pid, held->remote.driver->tid, &status, err),
	                 0);
	saver.status = status;
	saver.asked = &asked;
	sp_batch_begin(&held->remote);
	ret = facet->ask ? facet->ask(&saver, err) : 0;
	if (!ret)
		ret = sp_batch_run(&held->remote, err);
	if (!ret)
		ret = facet->save(&saver, body, err);
	free(asked.notes);
	free(status);
	return ret;
}

/** Rebuilds a facet of a process that also has another one in its record; NULL: none. */
static inline int rebuild_facet_beside(struct held *held, const struct sp_facet *facet,
                                       const struct sp_blob *body, const char *other,
                                       const struct sp_blob *other_body, struct sp_error *err)
{
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	Sealpoint__Thread thread = SEALPOINT__THREAD__INIT, *threads = &thread;
	Sealpoint__Facet own = SEALPOINT__FACET__INIT, *facets = &own;
	Sealpoint__Facet beside = SEALPOINT__FACET__INIT, *process_facets = &beside;
	struct sp_checkpoint checkpoint = {
	        .threads = {.items = &threads, .count = 1, .item_size = sizeof(threads)},
	};
	struct sp_facet_builder builder = {
	        .checkpoint = &checkpoint,
	        .process = &process,
	        .thread = &thread,
	        .remote = &held->remote,
	        .options = &facet_options,
	        .log = &facet_log,
	};

	process.pid = thread.pid = thread.tid = (uint32_t)held->process.pid;
	own.name = (char *)facet->name;
	own.body = (ProtobufCBinaryData){body->size, body->bytes};
	thread.facets = &facets;
	thread.n_facets = 1;
	if (other) {
		beside.name = (char *)other;
		beside.body = (ProtobufCBinaryData){other_body->size, other_body->bytes};
		process.facets = &process_facets;
		process.n_facets = 1;
	}
	*err = (struct sp_error){};
	sp_batch_begin(&held->remote);
	if (facet->rebuild(&builder, own.body, err))
		return -err->code;
	return sp_batch_run(&held->remote, err);
}

static inline int rebuild_facet(struct held *held, const struct sp_facet *facet,
                                const struct sp_blob *body, struct sp_error *err)
{
	return rebuild_facet_beside(held, facet, body, NULL, NULL, err);
}

static inline int check_facet(const struct sp_facet *facet, const ProtobufCMessage *message,
                              struct sp_error *err)
{
	struct sp_blob body = {};
	int ret;

	sp_blob_pack(&body, message);
	*err = (struct sp_error){};
	ret = facet->check((ProtobufCBinaryData){body.size, body.bytes}, err);
	sp_blob_release(&body);
	return ret;
}

static inline void assert_saved(struct held *held, const struct sp_facet *facet,
                                struct sp_blob *body)
{
	struct sp_error err;

	if (save_facet(held, facet, body, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void assert_rebuilt(struct held *held, const struct sp_facet *facet,
                                  const struct sp_blob *body)
{
	struct sp_error err;

	if (rebuild_facet(held, facet, body, &err) < 0)
		fail_msg("%s", err.message);
}

static inline bool same_bytes(const struct sp_blob *a, const struct sp_blob *b)
{
	return a->size == b->size && (!a->size || !memcmp(a->bytes, b->bytes, a->size));
}

/** Saves a prepared child, rebuilds it in a plain one, and compares. */
static inline void assert_survives(const struct sp_facet *facet, void (*prepare)(void))
{
	struct sp_blob wanted, before, after;
	struct held original, fresh;

	hold_child(&original, prepare);
	assert_saved(&original, facet, &wanted);
	hold_child(&fresh, NULL);
	assert_saved(&fresh, facet, &before);
	assert_false(same_bytes(&wanted, &before));
	assert_rebuilt(&fresh, facet, &wanted);
	assert_saved(&fresh, facet, &after);
	assert_true(same_bytes(&wanted, &after));
	sp_blob_release(&wanted);
	sp_blob_release(&before);
	sp_blob_release(&after);
	kill_child(&original);
	kill_child(&fresh);
}

/** As assert_survives() for a queue of signals, whose record also says when it was read. */
static inline void assert_queue_survives(const struct sp_facet *facet, void (*prepare)(void))
{
	const ProtobufCMessageDescriptor *type = &sealpoint__pending_signals__descriptor;
	Sealpoint__PendingSignals *queues[2];
	struct sp_blob wanted, after;
	struct held original, fresh;

	hold_child(&original, prepare);
	hold_child(&fresh, NULL);
	assert_saved(&original, facet, &wanted);
	assert_rebuilt(&fresh, facet, &wanted);
	assert_saved(&fresh, facet, &after);
	queues[0] = sp_blob_unpack((ProtobufCBinaryData){wanted.size, wanted.bytes}, type, NULL);
	queues[1] = sp_blob_unpack((ProtobufCBinaryData){after.size, after.bytes}, type, NULL);
	assert_true(queues[0]->n_siginfo > 0);
	assert_int_equal(queues[1]->n_siginfo, queues[0]->n_siginfo);
	for (size_t i = 0; i < queues[0]->n_siginfo; i++)
		assert_memory_equal(queues[1]->siginfo[i].data, queues[0]->siginfo[i].data,
		                    sizeof(siginfo_t));
	for (size_t i = 0; i < 2; i++)
		protobuf_c_message_free_unpacked(&queues[i]->base, NULL);
	sp_blob_release(&wanted);
	sp_blob_release(&after);
	kill_child(&original);
	kill_child(&fresh);
}

/** Saving must fail with `code` and words that hold `part`. */
static inline void assert_refused(const struct sp_facet *facet, void (*prepare)(void), int code,
                                  const char *part)
{
	struct sp_error err;
	struct sp_blob body;
	struct held held;

	hold_child(&held, prepare);
	assert_int_equal(save_facet(&held, facet, &body, &err), -code);
	assert_non_null(strstr(err.message, part));
	assert_null(body.bytes);
	kill_child(&held);
}

/** In a child: a step of its preparation. */
static inline void must(bool done)
{
	if (!done)
		_exit(97);
}

#endif
