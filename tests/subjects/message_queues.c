/*
 * POSIX message queues: one with a name, in which messages of several priorities wait, held by three
 * descriptors; and one that was unlinked.
 */
#include "subject.h"

#include <fcntl.h>
#include <mqueue.h>
#include <sys/stat.h>

#define MESSAGES 4
#define SIZE 32

static const struct {
	const char *text;
	unsigned priority;
} messages[MESSAGES] = {{"urgent", 9}, {"first", 3}, {"second", 3}, {"late", 0}};

static mqd_t make(const char *name, int flags, long count)
{
	struct mq_attr attributes = {.mq_maxmsg = count, .mq_msgsize = SIZE};
	mqd_t queue = mq_open(name, O_CREAT | O_EXCL | flags, 0640, &attributes);

	subject_need(queue >= 0, "mq_open");
	return queue;
}

static void send_all(mqd_t queue)
{
	for (size_t i = 0; i < MESSAGES; i++)
		subject_need(mq_send(queue, messages[i].text, strlen(messages[i].text),
		                     messages[i].priority) == 0,
		             "mq_send");
}

static void check_message(mqd_t queue, size_t number)
{
	char text[SIZE + 1] = "";
	unsigned priority = 0;
	ssize_t got = mq_receive(queue, text, SIZE, &priority);

	subject_check(got >= 0 && !strcmp(text, messages[number].text) &&
	                      priority == messages[number].priority,
	              "message %zu is \"%s\" of priority %u", number, text, priority);
}

static void check_attributes(mqd_t queue, long count, long flags, long waiting)
{
	struct mq_attr attributes = {0};

	subject_check(mq_getattr(queue, &attributes) == 0, "mq_getattr: %s", strerror(errno));
	subject_check(attributes.mq_maxmsg == count && attributes.mq_msgsize == SIZE &&
	                      attributes.mq_flags == flags && attributes.mq_curmsgs == waiting,
	              "queue %d: %ld of %ld messages of %ld bytes, flags %lo", queue,
	              attributes.mq_curmsgs, attributes.mq_maxmsg, attributes.mq_msgsize,
	              (unsigned long)attributes.mq_flags);
}

int main(void)
{
	mqd_t sender, receiver, copy, unlinked, other;
	struct stat stat;
	uid_t owner = getuid() ? getuid() : 65534;
	gid_t group = getuid() ? getgid() : 7;
	char name[64], text[SIZE];

	snprintf(name, sizeof(name), "/subject.%d", getpid());
	sender = make(name, O_WRONLY, 6);
	receiver = mq_open(name, O_RDONLY | O_NONBLOCK);
	copy = dup(receiver);
	subject_need(receiver >= 0 && copy >= 0, "mq_open, dup");
	send_all(sender);
	snprintf(text, sizeof(text), "/gone.%d", getpid());
	unlinked = make(text, O_RDWR | O_NONBLOCK, 3);
	other = mq_open(text, O_WRONLY);
	subject_need(other >= 0 && mq_unlink(text) == 0, "mq_unlink");
	subject_need(fchown(unlinked, owner, group) == 0, "fchown");

	subject_ready();

	check_attributes(sender, 6, 0, MESSAGES);
	check_attributes(receiver, 6, O_NONBLOCK, MESSAGES);
	for (size_t i = 0; i < MESSAGES; i++)
		check_message(i % 2 ? copy : receiver, i);
	subject_check(mq_receive(receiver, text, SIZE, NULL) == -1 && errno == EAGAIN,
	              "there are more messages");
	subject_check(mq_send(receiver, "", 0, 0) == -1 && errno == EBADF,
	              "the receiver's descriptor sends");
	fcntl(copy, F_SETFL, O_RDONLY);
	check_attributes(receiver, 6, 0, 0);
	fcntl(copy, F_SETFL, O_RDONLY | O_NONBLOCK);
	send_all(sender); /* for those who are restored from the same image */

	check_attributes(unlinked, 3, O_NONBLOCK, 0);
	subject_check(fstat(unlinked, &stat) == 0 && stat.st_nlink == 0 && stat.st_uid == owner &&
	                      stat.st_gid == group && (stat.st_mode & 0777) == 0640,
	              "the unlinked queue has %lu names, belongs to %u and %u, mode %o",
	              (unsigned long)stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_mode);
	subject_check(mq_send(other, messages[0].text, strlen(messages[0].text),
	                      messages[0].priority) == 0,
	              "mq_send: %s", strerror(errno));
	check_message(unlinked, 0);
	return subject_end();
}
