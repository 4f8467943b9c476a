/* Steps: System V shared memory, semaphores and messages, POSIX message queues. */
#include "random.h"

#include <fcntl.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static key_t new_key(void)
{
	return chance(50) ? IPC_PRIVATE : (key_t)(10000 + new_number());
}

static void attach_segment(void)
{
	size_t pages = 1 + below(16);
	int segment = shmget(new_key(), pages * 4096 - below(100), IPC_CREAT | 0600);
	char *memory = shmat(segment, NULL, 0);

	subject_need(segment >= 0 && memory != (void *)-1, "shmat");
	write_pages(memory, pages);
	if (chance(30))
		subject_need(shmat(segment, NULL, SHM_RDONLY) != (void *)-1, "shmat");
	if (chance(40))
		shmctl(segment, IPC_RMID, NULL);
	if (chance(15))
		shmdt(memory);
}

/* What is taken, or given, with SEM_UNDO is undone by a process that ends. */
static void use_semaphores(void)
{
	unsigned count = 1 + below(4);
	int set = semget(new_key(), (int)count, IPC_CREAT | 0600);

	subject_need(set >= 0, "semget");
	for (unsigned i = 0; i < count; i++)
		semctl(set, (int)i, SETVAL, below(100));
	for (unsigned i = below(4); i-- > 0;) {
		struct sembuf operation = {(unsigned short)below(count), (short)below(20),
		                           IPC_NOWAIT};

		operation.sem_flg |= chance(60) ? SEM_UNDO : 0;
		if (chance(50))
			operation.sem_op = (short)-operation.sem_op;
		semop(set, &operation, operation.sem_op != 0);
	}
}

static void send_messages(void)
{
	struct {
		long type;
		char text[100];
	} message = {1 + (long)below(5), "a message"};
	int queue = msgget(new_key(), IPC_CREAT | 0600);

	subject_need(queue >= 0, "msgget");
	for (unsigned i = below(4); i-- > 0;)
		msgsnd(queue, &message, below(100), IPC_NOWAIT);
}

/* One that has lost its name has no messages: it is refused otherwise. Limits may forbid it. */
static void make_message_queue(void)
{
	struct mq_attr attributes = {.mq_maxmsg = 1 + (long)below(8), .mq_msgsize = 64};
	char name[64];
	mqd_t queue;

	snprintf(name, sizeof(name), "/%s", new_name("queue"));
	queue = mq_open(name, O_RDWR | O_CREAT | (chance(50) ? O_NONBLOCK : 0), 0600, &attributes);
	if (queue < 0)
		return;
	keep(queue, "mq_open");
	if (chance(30)) {
		mq_unlink(name);
		return;
	}
	for (unsigned i = below((unsigned)attributes.mq_maxmsg + 1); i-- > 0;)
		mq_send(queue, "a message", below(10), below(10));
}

const struct step ipc_steps[] = {
        {"segment", attach_segment, 4},
        {"semaphores", use_semaphores, 4},
        {"messages", send_messages, 2},
        {"message-queue", make_message_queue, 4},
        {NULL, NULL, 0},
};
