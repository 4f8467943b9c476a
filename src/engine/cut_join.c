/*
 * How mappings join a tracking session: see cut.h.
 *
 * The list of a program that runs is a moment old. To register a part of a mapping cuts it in two, and mremap(2) of
 * what was one mapping and is two fails with EFAULT: the program would see that it is tracked. So all is registered
 * in one step, as many mappings as follow each other, with the free space around them, into which they may have grown,
 * or where others may have begun by now. Whatever that is, it is new, and not protected. What was registered before stays
 * as it is.
 */
#include "engine/cut.h"

#include "track/scan.h"

#include <errno.h>
#include <string.h>

/* How often what appears at that very moment is looked at again. */
#define TRIES 8
/* The [vsyscall] page lies behind it; a room that reached there could not be registered. */
#define ADDRESSES_END (1ULL << 47)

static struct sp_range range_at(const struct sp_array *vmas, size_t index)
{
	return ((const struct sp_vma *)sp_array_at(vmas, index))->range;
}

/*
 * All of a mapping that was not registered is new, whatever its pages say: kernels before 6.13 leave
 * them protected when they are moved, and the empty ones of hugetlb do not count as written. And when
 * memory of the session is moved next to a mapping of it, the kernel makes one of both and ends the
 * registration of all of it (mremap_userfaultfd_prep()), but leaves the protection in the page tables,
 * which no write takes away then. So what joins loses all protection first.
 *
 * Whenever it is registered again, or no longer, then all of `room` is, in which it lies: by now a mapping may reach
 * across its ends.
 */
static int unprotect(int uffd, struct sp_range room, struct sp_range range)
{
	int rc = sp_uffd_unprotect(uffd, range);

	/* Of a mapping that has just begun, and is not registered, it knows nothing, nor of those behind it. */
	for (int tries = 0; rc == -ENOENT && tries < TRIES; tries++) {
		rc = sp_uffd_register(uffd, room);
		if (rc < 0)
			return rc; /* nothing is there any more */
		rc = sp_uffd_unprotect(uffd, range);
	}
	if (rc < 0) /* it must be new the next time, too */
		sp_uffd_unregister(uffd, room);
	return rc;
}

/* From the end of the mapping before `first` to the beginning of the one at `end`. */
static struct sp_range room_of(const struct sp_array *vmas, size_t first, size_t end)
{
	struct sp_range room = {range_at(vmas, first).start, range_at(vmas, end - 1).end};

	if (first > 0)
		room.start = range_at(vmas, first - 1).end;
	if (end < vmas->count && range_at(vmas, end).start < ADDRESSES_END)
		room.end = range_at(vmas, end).start;
	return room;
}

/*
 * What sort of thing is among them that cannot join is found out one by one. EBUSY: it is of another userfaultfd, of
 * the program for example, which can look as ours do.
 */
static void join_apart(int uffd, const struct sp_array *vmas, size_t first, size_t end,
                       uint8_t *membership)
{
	for (size_t i = first; i < end; i++) {
		struct sp_range range = room_of(vmas, i, i + 1);
		int rc = sp_uffd_register(uffd, range);

		if (rc < 0) {
			range = range_at(vmas, i);
			rc = sp_uffd_register(uffd, range);
		}
		if (rc == 0 && membership[i] == SP_NEW_MEMBER)
			rc = unprotect(uffd, range, range);
		if (rc < 0)
			membership[i] = rc == -EBUSY ? SP_MEMBER_OF_OTHERS : SP_MEMBER_GONE;
	}
}

/* The mappings from `first` to before `end`, of which each is a member, or a new one. */
static void join_run(int uffd, const struct sp_array *vmas, size_t first, size_t end,
                     uint8_t *membership)
{
	struct sp_range room = room_of(vmas, first, end);

	if (sp_uffd_register(uffd, room) < 0) {
		join_apart(uffd, vmas, first, end, membership);
		return;
	}
	for (size_t next = first, last; next < end; next = last) {
		for (last = next; last < end && membership[last] == SP_NEW_MEMBER;)
			last++;
		if (last == next) {
			last++;
		} else if (unprotect(uffd, room, room_of(vmas, next, last)) < 0) {
			memset(membership + first, SP_MEMBER_GONE, end - first);
			return;
		}
	}
}

/* Those from `first` to before `end` can be tracked. Mostly all are members, and one look tells. */
static void find_members(int pagemap, const struct sp_array *vmas, size_t first, size_t end,
                         uint8_t *membership)
{
	struct sp_range all = {range_at(vmas, first).start, range_at(vmas, end - 1).end};

	if (sp_scan_check(pagemap, all) == 0) {
		memset(membership + first, SP_MEMBER, end - first);
		return;
	}
	for (size_t i = first; i < end; i++)
		membership[i] =
		        sp_scan_check(pagemap, range_at(vmas, i)) < 0 ? SP_NEW_MEMBER : SP_MEMBER;
}

static bool can_join(const struct sp_vma *vma, const struct sp_array *aside)
{
	return sp_cut_tracks(vma) && !(aside && sp_ranges_have(aside, vma->range));
}

void sp_cut_join(int uffd, int pagemap, const struct sp_array *vmas, const struct sp_array *aside,
                 uint8_t *membership)
{
	memset(membership, SP_NO_MEMBER, vmas->count);
	for (size_t first = 0, end; first < vmas->count; first = end + 1) {
		for (end = first; end < vmas->count && can_join(sp_array_at(vmas, end), aside);)
			end++;
		if (end == first)
			continue;
		find_members(pagemap, vmas, first, end, membership);
		join_run(uffd, vmas, first, end, membership);
	}
}
