/*
 * The interface of a kind of kernel object (docs/architecture.md, D9). A kind is one file in this
 * directory, one message in proto/, and one row in registry.c. There are two families:
 *
 *   - file kinds: what an open file can be (pipe, eventfd, regular file, ...);
 *   - facets: parts of a process or of a thread that are neither memory nor descriptors (timers,
 *     credentials, signal actions, ...).
 *
 * Messages are packed by their kind and travel as opaque bytes: nothing else reads them.
 */
#ifndef SEALPOINT_KINDS_KIND_H
#define SEALPOINT_KINDS_KIND_H

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "image/checkpoint.h"
#include "kinds/parking.h"
#include "remote/remote.h"

#include <sys/stat.h>

/** What becomes of control groups: of a dump, whether they are saved. */
enum sp_cgroup_mode {
	SP_CGROUPS_IGNORE,
	SP_CGROUPS_NONE,   /* they must be there; their properties stay */
	SP_CGROUPS_PROPS,  /* they must be there, and get their properties */
	SP_CGROUPS_SOFT,   /* they are made, with their properties, if they are not there */
	SP_CGROUPS_FULL,   /* they are made if they are not there, and get their properties */
	SP_CGROUPS_STRICT, /* they are made, and must not be there */
};

/** Options that change what is saved or how it is rebuilt: one object, set by the command. */
struct sp_kind_options {
	uint64_t unlinked_file_limit; /* bytes of an unlinked file that may be stored */
	bool tcp_close;               /* established connections are restored closed */
	bool tcp_established; /* dump: they are saved; restore: even if they are not locked */
	bool shell_job;       /* session, group and terminal may belong to somebody else */
	bool foreground;      /* restore: our terminal may get the modes of the program's */
	/* dump: what belongs to somebody else (inherit.h); char *, or NULL */
	struct sp_array *external;
	bool external_unix;   /* unix sockets lose a peer outside */
	bool connect_outside; /* dump: unix sockets connect again to one that listens outside */
	bool external_pipes;  /* pipes whose other end is outside are left to a restore */
	bool skip_in_flight;  /* dump: TCP connections that wait to be accepted are dropped */
	const struct sp_array *inherited; /* restore: struct sp_inherited, or NULL */
	enum sp_cgroup_mode cgroups;
	bool contents_only; /* core: nothing is made that somebody else could see */
};

/* --- bytes of a kind's own message --- */

struct sp_blob {
	uint8_t *bytes; /* malloc'd; freed by sp_blob_release() */
	size_t size;
};

void sp_blob_pack(struct sp_blob *blob, const ProtobufCMessage *message);
void sp_blob_release(struct sp_blob *blob);
/**
 * The message of that type, to be freed with sp_cleanup_message; NULL and EBADMSG with the
 * message's name if the bytes are none.
 */
void *sp_blob_unpack(ProtobufCBinaryData body, const ProtobufCMessageDescriptor *descriptor,
                     struct sp_error *err);
/** A message (of any type) that is freed at the end of its scope. */
#define sp_cleanup_message sp_cleanup(sp_message_scope)
static inline void sp_message_scope(void *pointer)
{
	protobuf_c_message_free_unpacked(*(ProtobufCMessage **)pointer, NULL);
}

/* --- file kinds --- */

/** An open file of the target as the dump sees it. Strings are owned by the file table. */
struct sp_open_file {
	uint32_t id;
	pid_t pid;
	pid_t living;     /* a thread of that process, for /proc and kcmp(2) */
	int number;       /* the first descriptor that refers to it; -1: it only backs mappings */
	int fd;           /* ours: the same open file; for a mapping-only file one opened anew */
	int flags;        /* as in fdinfo: access mode, status flags, O_PATH; without O_CLOEXEC */
	int64_t position; /* as in fdinfo */
	int mount_id;
	struct stat stat;
	char *link;   /* what /proc/PID/fd/N or map_files/RANGE points to: a path or "pipe:[123]" */
	char *fdinfo; /* the whole text of /proc/PID/fdinfo/N; "" for a mapping-only file */
	struct {
		int domain, type, protocol; /* as socket(2) was told */
	} socket;                           /* if it is one */
	const struct sp_file_kind *kind;    /* the row that claims it */
	/*
	 * For mapping-only files: the mapping needs this access; MAP_SHARED writable needs O_RDWR.
	 */
	bool map_shared;
	bool map_writable;
	bool in_flight; /* found in the queue of a unix socket; it has no number, and `pid` is ours */
	struct sp_unix_queue *queue; /* what waits in a unix socket: kinds/unix_queue.h */
};

/** Whether it is only there for a mapping, or as the executable. */
static inline bool sp_file_is_mapping_only(const struct sp_open_file *file)
{
	return file->number < 0 && !file->in_flight;
}

/** A refusal with this errno is of a state that passes by itself: the dump tries again for a while. */
#define SP_NOT_YET EINPROGRESS

/** What saving a file may use. */
struct sp_file_saver {
	struct sp_page_writer *
	        pages; /* for contents: sp_content_save(); NULL: it is only looked at, nothing is stored */
	const struct sp_kind_options *options;
	const struct sp_file_table *table; /* the other open files: kinds/file_table.h */
	pid_t root;                        /* it and its descendants are saved */
	struct sp_log *log;
};

struct sp_connection;
struct sp_connection_lock;
struct sp_file_table;
struct sp_unix_queue;

/** What rebuilding files may use. */
struct sp_file_builder {
	const struct sp_checkpoint *checkpoint;
	const struct sp_kind_options *options;
	struct sp_log *log;
	int *fds;    /* by OpenFile.id: sealpoint's own descriptor once opened, else -1 */
	bool *given; /* by OpenFile.id: it is the caller's, whom alone it concerns (inherit.h) */
	int *far_ends; /* by OpenFile.id: another descriptor of the kind's, closed when all are joined */
	struct sp_connection_lock *lock; /* for connections that are made (connection_lock.h) */
	/* While settling: the restored process, whose descriptors are in place. */
	struct sp_remote *remote;
	pid_t pid;
	int *numbers; /* by OpenFile.id: its lowest number in that process, else -1 */
	/* file_build.c's own */
	struct sp_array descriptors; /* const Sealpoint__Descriptor *, by pid and number */
	struct sp_parking parking;
	struct sp_array undo; /* struct sp_file_undo: should the restore fail */
};

struct sp_file_kind {
	const char *name;  /* in images: its file's */
	const char *title; /* for people: "unix stream socket" */
	/* It is about processes or threads: opened when all of the checkpoint's exist. */
	bool late;
	bool apart; /* its save() may be called for several open files at once, by several threads */
	/** Is this open file one of mine? Rows are asked in the registry's order. */
	bool (*claims)(const struct sp_open_file *file);
	/**
	 * Optional. Asked before any file is saved: adds to the table the open files that are in this one
	 * (kinds/file_table.h, sp_file_table_add_in_flight()).
	 */
	int (*look_inside)(struct sp_file_table *table, uint32_t id, struct sp_error *err);
	/**
	 * Optional. Asked when all open files are known, and before any is saved: the kind that is to save
	 * this one, another one if that depends on who holds the other end.
	 */
	const struct sp_file_kind *(*resolve)(const struct sp_file_table *table,
	                                      const struct sp_open_file *file);
	/**
	 * Optional. Asked before any file is saved: true if this is our end of a connection that has to
	 * be locked for it (kinds/connection_lock.h). Fills in the addresses, and how it is closed without a word.
	 */
	bool (*connects)(const struct sp_file_saver *saver, const struct sp_open_file *file,
	                 struct sp_connection *connection);
	/**
	 * Packs the kind's message. Refuses by name what cannot be saved (D5): the caller puts
	 * "cannot save descriptor N of process P (TITLE LINK): " in front.
	 */
	int (*save)(struct sp_file_saver *saver, const struct sp_open_file *file,
	            struct sp_blob *body, struct sp_error *err);
	/**
	 * Makes the open file in sealpoint itself, before the stub process is cloned; the clone
	 * inherits it, or, of a `late` kind, is handed it. Status flags (F_SETFL) and owner are set by the caller afterwards. Files are
	 * opened in the order of their ids; what one call makes in pairs (the two ends of a pipe)
	 * is handed over by filling in builder->fds of the other record, which is then not asked
	 * any more.
	 */
	int (*open)(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
	            struct sp_error *err);
	/**
	 * Optional. Called when all files are open, still in sealpoint: what takes several of them, such as
	 * a message that carries descriptors. Kind after kind, in the registry's order.
	 */
	int (*join)(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
	            struct sp_error *err);
	/**
	 * Optional. Called when every descriptor of the process is at its number and all mappings
	 * are made: interest lists of epoll, seals of memfds. An open file that several processes
	 * hold is settled once, in the first of them; one without a descriptor in the root process.
	 */
	int (*settle)(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
	              struct sp_error *err);
	/**
	 * Optional. The last step of a restore, when all has succeeded that can fail and connections are
	 * not locked any more: what others notice.
	 */
	int (*resume)(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
	              struct sp_error *err);
	/** Optional. One line for `inspect`: "/var/log/x.log, position 120". */
	void (*describe)(ProtobufCBinaryData body, char *text, size_t size);
	/**
	 * Optional. Checks the body as far as possible without doing anything: verify, restore's
	 * start.
	 */
	int (*check)(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
	             struct sp_error *err);
};

/* --- facets --- */

enum sp_facet_scope {
	SP_FACET_PROCESS, /* saved and rebuilt once, driving the leader */
	SP_FACET_THREAD,  /* for each thread, driving that thread */
};

/**
 * When a facet is rebuilt; a dump saves in the opposite order. Within a phase one thread after the
 * other is driven, the leader last, and each rebuilds its facets in the registry's order, the
 * leader those of the process too. So what a process facet sets in a phase is not undone by a
 * thread in the same phase.
 */
enum sp_facet_phase {
	SP_PHASE_STUB,        /* the stub exists, and is still a copy of sealpoint */
	SP_PHASE_MEMORY,      /* mappings and contents are in place: memory layout, executable */
	SP_PHASE_DESCRIPTORS, /* descriptors are at their numbers: cwd, root, umask; signal actions */
	SP_PHASE_THREADS,     /* all threads exist: what is theirs, timers, limits */
	SP_PHASE_PRIVILEGES, /* last of all, in this order: credentials, what they reset, seccomp */
};

/** What a facet's ask() leaves for its save(). */
struct sp_asked {
	size_t call;      /* its first call in the batch */
	remote_addr room; /* where its calls leave their answers */
	void *notes;      /* from sp_alloc(), or NULL; the caller frees it, behind save() */
};

struct sp_facet_saver {
	struct sp_process *process;
	struct sp_thread *thread; /* the driver */
	struct sp_remote *remote;
	const char *status;     /* text of the thread's /proc/PID/task/TID/status */
	struct sp_asked *asked; /* the facet's own */
	/* remote_addr: words that the kernel writes when a thread ends. NULL: nobody asks. */
	struct sp_array *last_words;
	const struct sp_kind_options *options;
	struct sp_log *log;
};

struct sp_facet_builder {
	const struct sp_checkpoint *checkpoint;
	const Sealpoint__Process *process;
	const Sealpoint__Thread *thread; /* the leader's for process facets */
	struct sp_remote *remote;        /* driving that thread */
	const struct sp_kind_options *options;
	const int *fds; /* by OpenFile.id: its number in the stub, until descriptors are placed */
	struct sp_log *log;
};

/** With what processes share it that fork(2) would have copied (kinds/sharing.h). */
enum sp_facet_sharing {
	SP_SHARED_NEVER,
	SP_SHARED_WITH_MEMORY,
	SP_SHARED_WITH_DIRECTORIES,
	SP_SHARED_WITH_ACTIONS,
};

struct sp_facet {
	const char *name; /* in images: its file's, with "shared_" in front of what threads share */
	const char *title; /* for people */
	enum sp_facet_scope scope;
	enum sp_facet_phase phase;
	enum sp_facet_sharing shared; /* then saved with the first who has it */
	/**
	 * Optional. Adds the system calls that save() needs to the batch which all facets of a thread have in
	 * common, and which is run between the two. Facets that ask are saved before those that do not: time
	 * goes on for timers, and for signals, which have to be read later than what may send them.
	 */
	int (*ask)(struct sp_facet_saver *saver, struct sp_error *err);
	/**
	 * Packs the facet's message. It may run more calls; where the facet asks, in the same batch, without
	 * beginning another one: others have still to find their answers. Leaving body->bytes NULL means "as a new process has it": no
	 * record. (A message whose fields are all zero has no bytes either, but is a record: what
	 * sealpoint itself has otherwise is reset by it.)
	 */
	int (*save)(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err);
	/**
	 * Adds the calls that make it to the batch that all facets of a thread have in common in a phase,
	 * and which is run behind the last of them. Only one that needs a result, or does something else that
	 * depends on its calls, runs the batch itself; with sp_batch_flush() it has a new one.
	 */
	int (*rebuild)(struct sp_facet_builder *builder, ProtobufCBinaryData body,
	               struct sp_error *err);
	/** Optional. One line for `inspect`. */
	void (*describe)(ProtobufCBinaryData body, char *text, size_t size);
	/**
	 * Optional. Refuses early what this machine cannot give (a missing capability, a limit).
	 */
	int (*check)(ProtobufCBinaryData body, struct sp_error *err);
	/**
	 * Optional. What a debugger wants to know of it: a note of an ELF core file, and its type
	 * (NT_AUXV).
	 */
	int (*core_note)(ProtobufCBinaryData body, uint32_t *type, struct sp_blob *note,
	                 struct sp_error *err);
};

/* --- the registry --- */

/** NULL-terminated rows. */
extern const struct sp_file_kind *const sp_file_kinds[];
extern const struct sp_facet *const sp_facets[];

const struct sp_file_kind *sp_file_kind_by_name(const char *name);
/**
 * Tells those who want to know all (--verbose) how many descriptors are of each kind; `kinds` has
 * one for each.
 */
void sp_tell_kinds(struct sp_log *log, const struct sp_array *kinds);
const struct sp_facet *sp_facet_by_name(const char *name);

#endif
