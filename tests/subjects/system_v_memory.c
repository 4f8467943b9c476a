/*
 * System V shared memory: a segment with a key that a child has attached too, one that is marked for
 * removal, and what a program can have of one: the whole, for reading only, pieces of it.
 */
#include "mapping.h"

#include <sys/shm.h>
#include <sys/wait.h>

#define SIZE (16 * PAGE)
#define BYTES (SIZE - 100)
#define WORDS (SIZE - PAGE) /* behind what is filled; a hole lies between */

struct words {
	_Atomic int question, answer;
};

static void answer(struct words *words)
{
	while (!words->question && getppid() != 1)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	words->answer = words->question + 1;
	_exit(0);
}

static struct shmid_ds look(int id)
{
	struct shmid_ds segment;

	subject_need(shmctl(id, IPC_STAT, &segment) == 0, "IPC_STAT");
	return segment;
}

static void check_same(int id, const struct shmid_ds *before, const char *which)
{
	struct shmid_ds now = {0};
	const struct ipc_perm *a = &before->shm_perm, *b = &now.shm_perm;

	if (!subject_check(shmctl(id, IPC_STAT, &now) == 0, "%s: there is none with id %d", which,
	                   id))
		return;
	subject_check(a->__key == b->__key, "%s: key %x is %x", which, a->__key, b->__key);
	subject_check(a->uid == b->uid && a->gid == b->gid, "%s: owner", which);
	subject_check(a->cuid == b->cuid && a->cgid == b->cgid, "%s: creator is %u, %u", which,
	              b->cuid, b->cgid);
	subject_check(a->mode == b->mode, "%s: mode %o is %o", which, a->mode, b->mode);
	subject_check(before->shm_segsz == now.shm_segsz, "%s: size is %zu", which, now.shm_segsz);
	subject_check(before->shm_nattch == now.shm_nattch, "%s: %lu attachments, were %lu", which,
	              now.shm_nattch, before->shm_nattch);
}

/* A segment whose creator, owner and group are three users, if it may have them. */
static int make_shared(key_t key)
{
	struct shmid_ds segment;
	int id;

	bool root = getuid() == 0;

	subject_need(!root || (setegid(3) == 0 && seteuid(2) == 0), "seteuid");
	id = shmget(key, BYTES, IPC_CREAT | IPC_EXCL | 0600);
	subject_need(id >= 0, "shmget");
	subject_need(!root || (seteuid(0) == 0 && setegid(0) == 0), "seteuid");
	segment = look(id);
	segment.shm_perm.uid = root ? 65534 : getuid();
	segment.shm_perm.gid = root ? 7 : getgid();
	segment.shm_perm.mode = 0640;
	subject_need(shmctl(id, IPC_SET, &segment) == 0, "IPC_SET");
	subject_need(shmctl(id, SHM_LOCK, NULL) == 0, "SHM_LOCK");
	return id;
}

/* Its second page is read only, its third one elsewhere, and the end of it is detached. */
static uint8_t *take_to_pieces(uint8_t *memory, uint8_t *other)
{
	subject_need(mprotect(memory + PAGE, PAGE, PROT_READ) == 0, "mprotect");
	subject_need(mremap(memory + 2 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) ==
	                     other,
	             "mremap");
	subject_need(munmap(memory + 8 * PAGE, SIZE - 8 * PAGE) == 0, "munmap");
	return memory;
}

int main(void)
{
	key_t key = 0x5ea10000 | (getpid() & 0xffff);
	int keyed = make_shared(key), removed = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
	uint8_t *shared = shmat(keyed, NULL, 0), *view = shmat(keyed, NULL, SHM_RDONLY);
	uint8_t *whole = shmat(removed, NULL, 0), *pieces = shmat(removed, NULL, 0);
	uint8_t *other = mapping_new(PAGE, PROT_NONE, MAP_PRIVATE);
	struct words *words = (void *)(shared + WORDS);
	struct shmid_ds keyed_before, removed_before;
	int status = 0;
	pid_t child;

	subject_need(shared != (void *)-1 && view != (void *)-1 && whole != (void *)-1 &&
	                     pieces != (void *)-1,
	             "shmat");
	mapping_fill(shared, 4 * PAGE, 1);
	mapping_fill(whole, SIZE, 2);
	child = fork();
	subject_need(child >= 0, "fork");
	if (child == 0)
		answer(words);
	take_to_pieces(pieces, other);
	subject_need(shmctl(removed, IPC_RMID, NULL) == 0, "IPC_RMID");
	keyed_before = look(keyed);
	removed_before = look(removed);

	subject_ready();

	check_same(keyed, &keyed_before, "with a key");
	check_same(removed, &removed_before, "removed");
	subject_check(shmget(key, 0, 0) == keyed, "the key leads to %d", shmget(key, 0, 0));
	mapping_check(shared, 4 * PAGE, 1, "the segment with a key");
	mapping_check(view, 4 * PAGE, 1, "its other attachment");
	subject_check(mprotect(view, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES,
	              "an attachment for reading can be made writable");
	mapping_check(whole, SIZE, 2, "the removed segment");
	mapping_check(pieces, 2 * PAGE, 2, "the pieces' beginning");
	mapping_check(other, PAGE, 2 + 2 * PAGE / 8, "the moved piece");
	mapping_check(pieces + 3 * PAGE, 5 * PAGE, 2 + 3 * PAGE / 8, "the pieces' end");
	whole[2 * PAGE] ^= 1;
	subject_check(other[0] == whole[2 * PAGE], "one segment has become two");
	whole[2 * PAGE] ^= 1;

	words->question = 41;
	subject_check(waitpid(child, &status, 0) == child && status == 0, "the child");
	subject_check(words->answer == 42, "the child answers in memory of its own");
	words->question = words->answer = 0;

	subject_check(shmdt(pieces) == 0, "shmdt: %s", strerror(errno));
	subject_check(other[0] == whole[2 * PAGE], "the moved piece went with the others");
	subject_check(msync(pieces + 3 * PAGE, PAGE, MS_ASYNC) == -1,
	              "a piece stays when the segment is detached");
	subject_check(shmctl(keyed, IPC_RMID, NULL) == 0, "IPC_RMID: %s", strerror(errno));
	return subject_end();
}
