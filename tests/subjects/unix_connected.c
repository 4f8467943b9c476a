/*
 * Unix sockets that were connected by name, between two processes: names of both ends, who each end believes
 * to talk to, connections that are not accepted yet, half shut ones, and names whose files were renamed, removed, or
 * are elsewhere.
 */
#include "subject.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, path);
	return address;
}

static int bind_to(int type, const char *path)
{
	struct sockaddr_un address = address_of(path);
	int fd = socket(AF_UNIX, type, 0);

	subject_need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%s", path);
	return fd;
}

static int listen_at(int type, const char *path)
{
	int fd = bind_to(type, path);

	subject_need(listen(fd, 5) == 0, "%s", path);
	return fd;
}

static int connect_to(int type, const char *path)
{
	struct sockaddr_un address = address_of(path);
	int fd = socket(AF_UNIX, type, 0);

	subject_need(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "%s", path);
	return fd;
}

static void check_name(int fd, const char *name, const char *what)
{
	struct sockaddr_un address = {0};
	socklen_t size = sizeof(address);

	subject_need(getsockname(fd, (struct sockaddr *)&address, &size) == 0, "getsockname");
	subject_check(!strcmp(address.sun_path, name), "%s is named \"%s\" instead of \"%s\"", what,
	              address.sun_path, name);
}

static void check_maker(int fd, pid_t pid, const char *what)
{
	struct ucred who = {0};
	socklen_t size = sizeof(who);

	subject_need(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0, "SO_PEERCRED");
	subject_check(who.pid == pid, "%s was made by process %d instead of %d, says SO_PEERCRED",
	              what, who.pid, pid);
}

static void check_talk(int from, int to, const char *what)
{
	char byte = 0;

	subject_check(send(from, "t", 1, MSG_NOSIGNAL) == 1 &&
	                      recv(to, &byte, 1, MSG_DONTWAIT) == 1 && byte == 't',
	              "%s: what is sent does not come", what);
}

/* The child connects, and says by its exit status whether its end is as it was. */
static int go_on[2];
static pid_t child;

static int start_child(const char *path)
{
	int listener = listen_at(SOCK_STREAM, path), accepted;

	subject_need(pipe(go_on) == 0, "pipe");
	child = fork();
	if (!child) {
		struct sockaddr_un own = address_of("bound client");
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		struct sockaddr_un there = address_of(path);
		char byte;

		close(listener);
		close(go_on[1]);
		if (bind(fd, (struct sockaddr *)&own, sizeof(own)) ||
		    connect(fd, (struct sockaddr *)&there, sizeof(there)) ||
		    read(go_on[0], &byte, 1))
			_exit(2);
		check_name(fd, "bound client", "the connecting end");
		check_maker(fd, getppid(), "the end that was accepted");
		subject_check(send(fd, "c", 1, MSG_NOSIGNAL) == 1, "the child cannot send");
		_exit(subject_failures ? 1 : 0);
	}
	accepted = accept(listener, NULL, NULL);
	close(go_on[0]);
	close(listener); /* the name stays with what was accepted, and the file with nobody */
	return accepted;
}

static void end_child(int accepted)
{
	int status = -1;
	char byte = 0;

	check_name(accepted, "nobody listens", "the accepted end");
	check_maker(accepted, child, "the connecting end");
	close(go_on[1]);
	subject_check(recv(accepted, &byte, 1, 0) == 1 && byte == 'c', "the child is not heard");
	subject_check(waitpid(child, &status, 0) == child && status == 0, "the child: status %#x",
	              status);
}

int main(void)
{
	int from_child = start_child("nobody listens");
	int listener = listen_at(SOCK_STREAM, "listener");
	int client = connect_to(SOCK_STREAM, "listener"), server = accept(listener, NULL, NULL);
	int waiting[2] = {connect_to(SOCK_STREAM, "listener"), connect_to(SOCK_STREAM, "listener")};
	int renamed = listen_at(SOCK_SEQPACKET, "first name");
	int removed = listen_at(SOCK_STREAM, "removed");
	int removed_client = connect_to(SOCK_STREAM, "removed"),
	    removed_server = accept(removed, NULL, NULL);
	int elsewhere, datagrams, sender, half_shut, home = open(".", O_RDONLY | O_DIRECTORY);
	struct stat before, after;
	char byte;

	subject_need(rename("first name", "second name") == 0, "rename");
	subject_need(unlink("removed") == 0, "unlink");
	subject_need(mkdir("place", 0700) == 0 && chdir("place") == 0, "mkdir");
	elsewhere = listen_at(SOCK_STREAM, "relative");
	datagrams = bind_to(SOCK_DGRAM, "datagrams");
	sender = connect_to(SOCK_DGRAM, "datagrams");
	subject_need(fchdir(home) == 0, "fchdir");
	half_shut = connect_to(SOCK_STREAM, "listener");
	subject_need(shutdown(half_shut, SHUT_WR) == 0 && shutdown(server, SHUT_RD) == 0,
	             "shutdown");
	subject_need(stat("second name", &before) == 0, "stat");

	subject_ready();

	end_child(from_child);
	check_name(server, "listener", "the accepted end");
	check_maker(client, getpid(), "the end that was accepted");
	check_talk(server, client, "from the accepted end");
	subject_check(send(client, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
	              "a shut direction can be written to");
	for (int i = 0; i < 2; i++) {
		int accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK);

		subject_check(accepted >= 0, "who waited does not wait any more");
		check_maker(accepted, getpid(), "the end that waited");
		check_talk(waiting[i], accepted, "from one that waited, in its order");
		check_talk(accepted, waiting[i], "to one that waited, in its order");
	}
	subject_check(recv(accept(listener, NULL, NULL), &byte, 1, MSG_DONTWAIT) == 0,
	              "who waited has not shut its direction");
	check_name(renamed, "first name", "the renamed one");
	subject_check(stat("second name", &after) == 0 && after.st_mode == before.st_mode &&
	                      access("first name", F_OK),
	              "the renamed file is not where it was");
	close(connect_to(SOCK_SEQPACKET, "second name"));
	check_name(removed_server, "removed", "the accepted end of the removed one");
	check_talk(removed_client, removed_server, "of the removed one");
	subject_check(access("removed", F_OK) == -1, "the removed file is back");
	check_name(elsewhere, "relative", "the relative one");
	close(connect_to(SOCK_STREAM, "place/relative"));
	check_name(datagrams, "datagrams", "the relative one of datagrams");
	subject_check(send(sender, "d", 1, 0) == 1 &&
	                      recv(datagrams, &byte, 1, MSG_DONTWAIT) == 1 && byte == 'd',
	              "the relative one gets no datagram");
	return subject_end();
}
