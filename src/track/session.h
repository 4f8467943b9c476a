/*
 * A tracking session: which pages of another process were written since the last cut.
 *
 * The session is a descriptor of that process's memory, and exists as long as somebody holds it: a
 * userfaultfd, whose asynchronous write protection tells (Linux 6.7). Where the kernel has none, the
 * soft-dirty bits of the page tables do, and it is a pagemap, which tells nothing but whether that memory
 * still exists. Those bits are read and cleared in two steps, for which the process has to stand still
 * (engine/cut_soft_dirty.c).
 *
 * Between commands a small process holds the session, the holder (holder.c): it ends with the program,
 * or when it is told to, and is found through a socket in the run directory, /run/sealpoint or, for
 * users, $XDG_RUNTIME_DIR/sealpoint. As long as the session is not kept, it ends with the command that
 * has made it, too: whatever becomes of that command, nothing stays that nobody asked for.
 *
 * A *cut* is what every dump with a session makes: all that was written since the last cut is
 * taken, and protected again, and the generation is one higher (docs/architecture.md, D7). Whoever takes
 * from a session, or registers with it, does so as part of a cut, which no other can make at the
 * same time. A checkpoint names the session and the generation that it closed: it can be the parent
 * of the next only if nobody has cut since.
 *
 * Losing a session is never a loss: the next dump stores full contents.
 */
#ifndef SEALPOINT_TRACK_SESSION_H
#define SEALPOINT_TRACK_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_error;

#define SP_SESSION_ID_SIZE 16

enum sp_session_backend {
	SP_SESSION_ANY,  /* the best that the kernel has */
	SP_SESSION_SCAN, /* asynchronous write protection, PAGEMAP_SCAN */
	SP_SESSION_SOFT_DIRTY, /* /proc/PID/clear_refs: anybody who writes to that as well is not noticed */
};

struct sp_session {
	pid_t pid;
	enum sp_session_backend backend;
	int memory; /* a userfaultfd, or a pagemap */
	int socket; /* to the holder; -1: there is none */
	pid_t holder;
	uint8_t id[SP_SESSION_ID_SIZE];
	uint64_t generation; /* of the last cut; 0: none yet */
};

#define SP_SESSION_NONE ((struct sp_session){.memory = -1, .socket = -1})
#define sp_cleanup_session __attribute__((cleanup(sp_session_close)))

/** False for a user who has no run directory: what only lasts as long as a command can do without. */
bool sp_sessions_have_place(void);

/**
 * Begins a session with a userfaultfd that was made by process `pid` and is not yet enabled; takes
 * it over, also on failure. It ends with sp_session_close() unless it is given to a holder.
 */
int sp_session_begin(struct sp_session *session, pid_t pid, int uffd, struct sp_error *err);
/**
 * Begins one with soft-dirty bits. EOPNOTSUPP if the kernel has none; EPERM without CAP_SYS_ADMIN: the
 * page of zeros, which is never dirty, is known by its frame number only.
 */
int sp_session_begin_soft_dirty(struct sp_session *session, pid_t pid, struct sp_error *err);
/**
 * Starts a holder for it, so that other commands find it. `pidfd` is of the same process; the holder
 * ends when that does, and when this session is closed. EEXIST if that process has a session already.
 */
int sp_session_hold(struct sp_session *session, int pidfd, struct sp_error *err);
/** A session that has a holder outlives this command from now on. */
int sp_session_keep(struct sp_session *session, struct sp_error *err);

/**
 * Makes a session of a process that has none, which it may stop for a moment, until `deadline_ns` at the
 * latest. `hold`: it is given to a holder, so that others find it.
 */
int sp_session_make(struct sp_session *session, pid_t pid, enum sp_session_backend backend,
                    bool hold, uint64_t deadline_ns, struct sp_error *err);
/** "scan", "soft-dirty", as `sealpoint check` calls them. */
const char *sp_session_backend_name(enum sp_session_backend backend);
/** The backend of that name, or -1. */
int sp_session_backend_by_name(const char *name);

/**
 * Finds the session of a process. Returns 1 if there is one, 0 if not. EPERM if what answers at its
 * place is somebody else's.
 */
int sp_session_find(struct sp_session *session, pid_t pid, struct sp_error *err);
/**
 * True if the address space that the session tracks is gone: the process has ended, or executed
 * another program.
 */
bool sp_session_is_dead(const struct sp_session *session);
/** As sp_session_find(), and ends a session that is dead: then there is none. */
int sp_session_find_live(struct sp_session *session, pid_t pid, struct sp_error *err);

/**
 * Begins a cut: raises the generation. Until the session is closed nobody else can cut. EBUSY if
 * another command is just at it. From now on a checkpoint of an earlier generation is nobody's
 * parent, whether or not the cut becomes a checkpoint.
 */
int sp_session_cut(struct sp_session *session, struct sp_error *err);

/** Lets go of a session. It lives on if it was found, or kept. */
void sp_session_close(struct sp_session *session);
/** Ends a session that a holder has, and waits until it has. Closes it. */
int sp_session_end(struct sp_session *session, struct sp_error *err);

#endif
