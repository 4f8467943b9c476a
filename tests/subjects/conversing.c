/*
 * Two threads that talk over a TCP connection all the time, one word after the other: what comes is what was
 * sent, once, and in order. Each counts its rounds in the file "heartbeat", as tests/subjects/working.c does, so that
 * a test sees from outside whether the connection goes on.
 *
 * subject: dump=--tcp-established restore=--tcp-established
 */
#include "subject.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define PAGE 4096
#define WORDS 64 /* at a time: a few are on their way whenever it is looked */

static _Atomic uint64_t *heartbeat;
static int ends[2];

static void connect_ends(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	const int yes = 1;

	subject_need(bind(listener, (struct sockaddr *)&address, size) == 0, "bind");
	subject_need(listen(listener, 1) == 0, "listen");
	subject_need(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	subject_need(connect(ends[0], (struct sockaddr *)&address, size) == 0, "connect");
	ends[1] = accept(listener, NULL, NULL);
	subject_need(ends[1] >= 0, "accept");
	close(listener);
	for (int i = 0; i < 2; i++)
		setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static void *asking(void *unused)
{
	uint64_t sent = 0, expected = 0, words[WORDS];

	while (subject_running()) {
		for (int i = 0; i < WORDS; i++)
			words[i] = sent++;
		subject_check(send(ends[0], words, sizeof(words), MSG_NOSIGNAL) == sizeof(words),
		              "send: %s", strerror(errno));
		for (int i = 0; i < WORDS; i++)
			if (!subject_check(recv(ends[0], words, 8, MSG_WAITALL) == 8 &&
			                           *words == expected++,
			                   "an answer is wrong: %s", strerror(errno)))
				return NULL;
		++heartbeat[1];
	}
	shutdown(ends[0], SHUT_WR);
	return NULL;
}

static void *answering(void *unused)
{
	uint64_t expected = 0, word;
	ssize_t got;

	while ((got = recv(ends[1], &word, sizeof(word), MSG_WAITALL)) == sizeof(word)) {
		subject_check(word == expected++, "a word was lost or repeated");
		subject_check(send(ends[1], &word, sizeof(word), MSG_NOSIGNAL) == sizeof(word),
		              "answer: %s", strerror(errno));
		++heartbeat[2];
	}
	subject_check(got == 0, "recv: %s", strerror(errno));
	return NULL;
}

int main(void)
{
	int fd = open("heartbeat", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	pthread_t threads[2];

	subject_need(fd >= 0 && ftruncate(fd, PAGE) == 0, "heartbeat");
	heartbeat = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	subject_need(heartbeat != MAP_FAILED, "mmap");
	connect_ends();
	subject_need(pthread_create(&threads[0], NULL, asking, NULL) == 0, "pthread_create");
	subject_need(pthread_create(&threads[1], NULL, answering, NULL) == 0, "pthread_create");
	*heartbeat = 2;

	subject_ready();

	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
