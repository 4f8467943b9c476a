/* UDP sockets: one that is bound, one that sends to it. */
#include "subject.h"

#include <netinet/in.h>
#include <sys/socket.h>

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in after = {0};
	socklen_t size = sizeof(address);
	int bound = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
	char byte = 0;

	subject_need(bind(bound, (struct sockaddr *)&address, size) == 0, "bind");
	subject_need(getsockname(bound, (struct sockaddr *)&address, &size) == 0, "getsockname");
	subject_need(connect(sender, (struct sockaddr *)&address, size) == 0, "connect");
	subject_ready();
	subject_check(getsockname(bound, (struct sockaddr *)&after, &size) == 0 &&
	                      after.sin_port == address.sin_port,
	              "another port");
	subject_check(send(sender, "x", 1, 0) == 1, "send: %s", strerror(errno));
	subject_check(recv(bound, &byte, 1, 0) == 1 && byte == 'x', "what was sent did not come");
	return subject_end();
}
