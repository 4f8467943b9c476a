/*
 * A cut: what a dump takes out of a tracking session, and whether it can stand on a parent.
 *
 *	sp_cut_begin()    find or make the session, raise its generation, look at the parent
 *	sp_cut_take()     ... while the program runs: what has changed, to be saved as a layer
 *	sp_cut_take()     ... once more in the freeze: what has changed since
 *	sp_cut_committed(), and sp_cut_begin() again for the next of a chain
 *	sp_cut_end()
 *
 * Everything rests on one rule: what a take has found is saved. Taking protects what it reports in
 * the same step, so a page that a later take does not report is as the last layer, or the parent,
 * has it. A mapping that joins the session is not protected before its first take, which therefore
 * reports all of it.
 */
#ifndef SEALPOINT_ENGINE_CUT_H
#define SEALPOINT_ENGINE_CUT_H

#include "base/range_set.h"
#include "image/checkpoint.h"
#include "mem/page_scan.h"
#include "mem/vma.h"
#include "remote/foothold.h"
#include "track/session.h"

struct sp_log;

enum sp_cut_session {
	SP_CUT_IF_TRACKED, /* use the session that there is, or none */
	SP_CUT_TRACK, /* make one if there is none, for the next dump too once this one is made */
	SP_CUT_ONCE,  /* make one if there is none, for this cut alone */
};

struct sp_cut {
	struct sp_session session;
	pid_t living;                    /* see sp_process_living() */
	enum sp_session_backend backend; /* of a session that this cut makes */
	bool active;                     /* there is a session */
	bool made;                       /* by this cut, and it ends with it */
	bool named;                      /* a cut of several processes: warnings say which */
	uint32_t object;                 /* that has its memory in the parent; 0: nothing */
	char *parent; /* directory of what PARENT pages stand on; NULL: nothing */
	uint8_t parent_id[SP_CHECKPOINT_ID_SIZE];
	struct sp_array
	        covered; /* where layers or the parent have all pages that are not changed */
	struct sp_array changed; /* what the last take has found: to be saved */
	uint64_t written;        /* bytes of it that are known to be written: no holes */
	struct sp_array taken;   /* what all takes of this cut have found: not a set yet */
	struct sp_array aside;   /* mappings that are ours with another userfaultfd: all changed */
	struct sp_array holes;   /* where the last take has seen nothing, and protected nothing */
	struct sp_array huge;    /* transparent huge pages of what was saved so far */
	struct sp_foothold foothold; /* of the dump before, to be confirmed; or not `complete` */
};

/** The cuts of several processes, by pid. */
struct sp_cuts {
	struct sp_array cuts; /* struct sp_cut * */
	uint64_t tracees_ns;  /* when it was last looked whom they trace; 0: never */
};

#define SP_CUTS_NONE ((struct sp_cuts){.cuts = SP_ARRAY_OF(struct sp_cut *)})
#define sp_cleanup_cuts __attribute__((cleanup(sp_cuts_end)))
#define sp_cleanup_cut __attribute__((cleanup(sp_cut_end)))

void sp_cut_init(struct sp_cut *cut);
/**
 * Begins a cut of process `pid`, which runs. To make a session stops it for a moment, until
 * `deadline_ns` at the latest. `parent` is the directory of a checkpoint or NULL. A parent that
 * cannot be read is an error; one that is not the session's last cut is warned about and not used.
 *
 * A cut that was begun before goes on with its session, on the checkpoint that was committed last;
 * then `which` and `parent` mean nothing.
 */
int sp_cut_begin(struct sp_cut *cut, pid_t pid, enum sp_cut_session which, const char *parent,
                 uint64_t deadline_ns, struct sp_log *log, struct sp_error *err);
/**
 * Takes what has changed in these mappings into cut->changed, together with what nobody has saved
 * yet. Mappings that can be tracked join the session, and lose their flag SP_VMA_UFFD unless it is
 * somebody else's. `frozen`: the program stands still, and was taken from before. Then page tables
 * are walked once: where there was nothing the last time, all counts as written. Else it may have to be
 * stopped (soft-dirty bits), until `deadline_ns` at the latest.
 */
int sp_cut_take(struct sp_cut *cut, const struct sp_array *vmas, bool frozen, uint64_t deadline_ns,
                struct sp_error *err);
/** After cut->changed has been saved (sp_memory_save() has noted huge pages in `vmas`). */
void sp_cut_saved(struct sp_cut *cut, const struct sp_array *vmas);
/** Instead, if it is not saved: the next take reports it again. */
void sp_cut_not_saved(struct sp_cut *cut);
/** Gives each VMA the list of all its huge pages, those of lower layers and of the parent too. */
void sp_cut_list_huge(const struct sp_cut *cut, const struct sp_array *vmas);
/** What was saved has become the checkpoint at `path`: the parent of the next. */
int sp_cut_committed(struct sp_cut *cut, const char *path, struct sp_error *err);
/** What was taken is lost: the next stores full contents. */
void sp_cut_failed(struct sp_cut *cut);
/** Begins the same cut again, on the same parent: nothing that was taken so far has been saved. */
int sp_cut_again(struct sp_cut *cut, struct sp_log *log, struct sp_error *err);
/** A session that this cut has made does not end with it. */
int sp_cut_keep_session(struct sp_cut *cut, struct sp_error *err);
void sp_cut_end(struct sp_cut *cut);

/** The cut of a process that is the first of a tree, or is not; a new one if there is none. */
struct sp_cut *sp_cuts_of(struct sp_cuts *cuts, pid_t pid, bool first);
/** Ends those of all other processes. */
void sp_cuts_keep(struct sp_cuts *cuts, const struct sp_array *pids);
int sp_cuts_committed(struct sp_cuts *cuts, const char *path, struct sp_error *err);
void sp_cuts_failed(struct sp_cuts *cuts);
/** Sessions that these cuts have made do not end with them. A failure is one of the first cut. */
int sp_cuts_keep_sessions(struct sp_cuts *cuts, struct sp_error *err);
void sp_cuts_end(struct sp_cuts *cuts);

/*
 * The two ways of sp_cut_take(), which lack only what nobody has saved yet. The one with soft-dirty bits
 * stops a program that is not `frozen`, until `deadline_ns` at the latest.
 */
int sp_cut_take_scan(struct sp_cut *cut, const struct sp_array *vmas, bool frozen,
                     struct sp_error *err);
int sp_cut_take_soft_dirty(struct sp_cut *cut, const struct sp_array *vmas, bool frozen,
                           uint64_t deadline_ns, struct sp_error *err);
/**
 * Adds the bytes of a mapping that such a session tracks, and those of them that were written. `scan` reports
 * soft-dirty bits.
 */
int sp_cut_count_soft_dirty(struct sp_page_scan *scan, const struct sp_vma *vma, uint64_t *tracked,
                            uint64_t *written, struct sp_error *err);

/** True if writes to this mapping are seen: its pages belong to nobody else. */
bool sp_cut_tracks(const struct sp_vma *vma);

/** Of a mapping, in a session. */
enum sp_membership {
	SP_NO_MEMBER,
	SP_MEMBER,
	SP_NEW_MEMBER,       /* nothing of it is protected, whatever was before */
	SP_MEMBER_OF_OTHERS, /* of another userfaultfd */
	SP_MEMBER_GONE,      /* since the list was read */
};

/**
 * Lets all mappings of a list join the session that can be tracked, but those that are `aside` (may be NULL). Tells of
 * each what it is in `membership`. So that no mapping of a running program is cut in two, what has appeared next to new
 * members joins as well, and is not protected.
 */
void sp_cut_join(int uffd, int pagemap, const struct sp_array *vmas, const struct sp_array *aside,
                 uint8_t *membership);

#endif
