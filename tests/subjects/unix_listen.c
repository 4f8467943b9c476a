/* Listening unix sockets: a path with owner and mode, an abstract name, and who listens. */
#include "subject.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static socklen_t size;

static void check_service(int listener, const struct sockaddr_un *address, int type,
                          const char *what)
{
	int client = socket(AF_UNIX, type, 0), server;
	struct ucred who = {0};
	socklen_t who_size = sizeof(who);
	char byte = 0;

	if (!subject_check(connect(client, (const struct sockaddr *)address, size) == 0,
	                   "%s: connect: %s", what, strerror(errno)))
		return;
	server = accept(listener, NULL, NULL);
	subject_check(server >= 0, "%s: accept: %s", what, strerror(errno));
	subject_check(write(client, "x", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'x',
	              "%s: the connection does not work", what);
	subject_check(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &who_size) == 0 &&
	                      who.pid == getpid(),
	              "%s: pid %d listens, says SO_PEERCRED", what, who.pid);
	close(client);
	close(server);
}

int main(void)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX}, abstract = {.sun_family = AF_UNIX};
	int stream = socket(AF_UNIX, SOCK_STREAM, 0), packet = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct stat before, after;

	size = sizeof(path);
	strcpy(path.sun_path, "listening");
	snprintf(abstract.sun_path + 1, sizeof(abstract.sun_path) - 1, "subject-%d", getpid());
	subject_need(bind(stream, (struct sockaddr *)&path, size) == 0, "bind");
	subject_need(chmod(path.sun_path, 0620) == 0, "chmod");
	subject_need(stat(path.sun_path, &before) == 0, "stat");
	subject_need(bind(packet, (struct sockaddr *)&abstract, size) == 0, "bind");
	subject_need(listen(stream, 3) == 0 && listen(packet, 4) == 0, "listen");
	subject_ready();
	subject_check(stat(path.sun_path, &after) == 0 && after.st_mode == before.st_mode &&
	                      after.st_uid == before.st_uid,
	              "the socket file has mode %o", after.st_mode);
	check_service(stream, &path, SOCK_STREAM, "stream");
	check_service(packet, &abstract, SOCK_SEQPACKET, "seqpacket");
	unlink(path.sun_path);
	return subject_end();
}
