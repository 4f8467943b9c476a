/*
 * Keys that the packets of TCP connections are signed with, and those of who listens, for one address and for a
 * network.
 *
 * subject: dump=--tcp-established restore=--tcp-established
 */
#include "subject.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

static const char key[] = "the key of both ends";

static int set_key(int fd, in_addr_t address, unsigned prefix, size_t size)
{
	struct tcp_md5sig option = {.tcpm_flags = TCP_MD5SIG_FLAG_PREFIX,
	                            .tcpm_prefixlen = (uint8_t)prefix,
	                            .tcpm_keylen = (uint16_t)size};
	const struct sockaddr_in peer = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};

	memcpy(&option.tcpm_addr, &peer, sizeof(peer));
	memcpy(option.tcpm_key, key, size);
	return setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG_EXT, &option, sizeof(option));
}

static void check_passes(int from, int to, const char *what)
{
	char text[8] = "";
	const struct timeval limit = {.tv_sec = 20};

	setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	subject_check(send(from, what, 4, 0) == 4 && recv(to, text, 4, MSG_WAITALL) == 4 &&
	                      !memcmp(text, what, 4),
	              "what is sent by the %s does not come: %s", what, strerror(errno));
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int stranger, other, server;

	if (set_key(client, INADDR_LOOPBACK, 32, sizeof(key)) && errno == ENOPROTOOPT)
		subject_skip("this kernel has no TCP_MD5SIG");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	subject_need(set_key(listener, 0x7f000000, 8, sizeof(key)) == 0, "TCP_MD5SIG_EXT");
	subject_need(set_key(listener, 0x0a000001, 32, 5) == 0, "TCP_MD5SIG_EXT");
	subject_need(bind(listener, (struct sockaddr *)&address, size) == 0 &&
	                     listen(listener, 5) == 0 &&
	                     getsockname(listener, (struct sockaddr *)&address, &size) == 0,
	             "listen");
	subject_need(connect(client, (struct sockaddr *)&address, size) == 0, "connect");
	server = accept(listener, NULL, NULL);
	subject_need(server >= 0, "accept");

	subject_ready();

	check_passes(client, server, "client");
	check_passes(server, client, "server");
	stranger = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect(stranger, (struct sockaddr *)&address, size);
	other = socket(AF_INET, SOCK_STREAM, 0);
	set_key(other, INADDR_LOOPBACK, 32, sizeof(key));
	subject_check(connect(other, (struct sockaddr *)&address, size) == 0,
	              "who has the key cannot connect: %s", strerror(errno));
	subject_check(poll(&(struct pollfd){.fd = stranger, .events = POLLOUT}, 1, 0) == 0,
	              "who has no key can connect");
	/* A key that can be taken away was there. */
	subject_check(set_key(client, INADDR_LOOPBACK, 32, 0) == 0, "the client's key is lost");
	subject_check(set_key(listener, 0x0a000001, 32, 0) == 0 &&
	                      set_key(listener, 0x7f000000, 8, 0) == 0,
	              "a key of the listener is lost");
	return subject_end();
}
