/* TCP, UDP and unix sockets: what is saved comes back, what cannot be saved is refused by name. */
#include "unit/round_trip.h"

#include "engine/engine.h"
#include "kinds/tcp_repair.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static void need(bool holds)
{
	if (!holds)
		abort();
}

static int get_option(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	getsockopt(fd, level, name, &value, &size);
	return value;
}

static void set_option(int fd, int level, int name, int value)
{
	need(setsockopt(fd, level, name, &value, sizeof(value)) == 0);
}

/* --- TCP --- */

static uint16_t port; /* a free one, for a test */

static uint16_t free_port(void)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	need(bind(fd, (struct sockaddr *)&address, size) == 0);
	need(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	close(fd);
	return ntohs(address.sin6_port);
}

static struct sockaddr_in local_v4(uint16_t at)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_port = htons(at),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listen_v4(void)
{
	struct sockaddr_in address = local_v4(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 37) == 0);
	return fd;
}

static int connect_v4(void)
{
	struct sockaddr_in address = local_v4(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	need(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

static void make_listener_with_options(void)
{
	int fd = listen_v4();
	struct linger linger = {.l_onoff = 1, .l_linger = 12};
	struct timeval timeout = {.tv_sec = 5, .tv_usec = 4000};

	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, 50000);
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 7);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 123);
	set_option(fd, IPPROTO_TCP, TCP_FASTOPEN, 5);
	set_option(fd, IPPROTO_IP, IP_TOS, 16); /* sets the priority, too */
	set_option(fd, SOL_SOCKET, SO_PRIORITY, 3);
	need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0);
	need(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
}

static void listener_keeps_backlog_and_options(void **state)
{
	struct round_trip trip;
	struct linger linger;
	struct timeval timeout;
	struct tcp_info info;
	char congestion[16] = "";
	socklen_t size = sizeof(linger);
	int fd;

	port = free_port();
	round_trip_save(&trip, make_listener_with_options, NULL);
	round_trip_restore(&trip);
	fd = round_trip_fd(&trip, 0);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_REUSEADDR), 1);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_RCVBUF), 100000);
	assert_int_equal(get_option(fd, SOL_SOCKET, SO_PRIORITY), 3);
	assert_int_equal(get_option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(get_option(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT), 7);
	assert_int_equal(get_option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 123);
	assert_int_equal(get_option(fd, IPPROTO_TCP, TCP_FASTOPEN), 5);
	assert_int_equal(get_option(fd, IPPROTO_IP, IP_TOS), 16);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size), 0);
	assert_int_equal(linger.l_linger, 12);
	size = sizeof(timeout);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, &size), 0);
	assert_int_equal(timeout.tv_usec, 4000);
	size = sizeof(congestion);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &size), 0);
	assert_string_equal(congestion, "reno");
	size = sizeof(info);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
	assert_int_equal(info.tcpi_sacked, 37);
	round_trip_end(&trip);
}

static void make_v6_listeners(void)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	for (int only = 0; only < 2; only++) {
		int fd = socket(AF_INET6, SOCK_STREAM, 0);

		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, only);
		set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
		need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
		need(listen(fd, 5) == 0);
	}
}

static void listeners_on_one_port_and_dual_stack_come_back(void **state)
{
	struct round_trip trip;

	port = free_port();
	round_trip_save(&trip, make_v6_listeners, NULL);
	round_trip_restore(&trip);
	assert_int_equal(get_option(round_trip_fd(&trip, 0), IPPROTO_IPV6, IPV6_V6ONLY), 0);
	assert_int_equal(get_option(round_trip_fd(&trip, 1), IPPROTO_IPV6, IPV6_V6ONLY), 1);
	close(connect_v4()); /* only one of the two takes IPv4 */
	assert_int_equal(poll(&(struct pollfd){round_trip_fd(&trip, 0), POLLIN, 0}, 1, 10000), 1);
	round_trip_end(&trip);
}

/*
 * The listener's end of a closed connection stays in TIME_WAIT, on the port that is wanted again.
 */
static void make_time_wait(void)
{
	int listener = listen_v4(), client = connect_v4();
	int server = accept(listener, NULL, NULL);
	char byte;

	close(server);
	need(read(client, &byte, 1) == 0);
	close(client);
}

static void listener_comes_back_on_a_port_with_old_connections(void **state)
{
	struct round_trip trip;

	port = free_port();
	round_trip_save(&trip, make_time_wait, NULL);
	round_trip_restore(&trip);
	close(connect_v4());
	round_trip_end(&trip);
}

static void make_waiting_connection(void)
{
	listen_v4();
	connect_v4();
}

static void make_connection(void)
{
	listen_v4();
	connect_v4();
	need(accept(0, NULL, NULL) == 2);
}

static void established_connections_are_refused_by_name(void **state)
{
	char words[64];

	port = free_port();
	assert_refused(make_waiting_connection, "1 connections to 127.0.0.1");
	port = free_port();
	snprintf(words, sizeof(words), "to 127.0.0.1:%u is established", port);
	assert_refused(make_connection, words);
}

static int tcp_state(int fd)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);

	need(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
	return info.tcpi_state;
}

/* One end has said that it sends no more, and the other has confirmed it. */
static void make_half_closed(void)
{
	make_connection();
	need(shutdown(1, SHUT_WR) == 0);
	need(read(2, (char[1]){0}, 1) == 0);
	while (tcp_state(1) != TCP_FIN_WAIT2)
		sched_yield();
}

static void make_half_closed_by_the_other_end(void)
{
	make_connection();
	need(shutdown(2, SHUT_WR) == 0);
	need(read(1, (char[1]){0}, 1) == 0);
}

static void make_closed_at_the_other_end(void)
{
	make_half_closed();
	need(close(2) == 0);
	need(read(1, (char[1]){0}, 1) == 0);
}

static void half_closed_connections_are_refused_with_what_helps(void **state)
{
	struct round_trip trip;

	port = free_port();
	assert_refused(make_half_closed_by_the_other_end,
	               "closed by the other end but not by the program; let the program close it");
	port = free_port();
	assert_refused(make_half_closed,
	               "closed by the program but not by the other end; close it at the other end");
	port = free_port();
	round_trip_save(&trip, make_closed_at_the_other_end, NULL);
	round_trip_end(&trip);
}

static void assert_reads_as_closed(int fd)
{
	struct pollfd poll_fd = {fd, POLLIN | POLLRDHUP, 0};
	char byte;

	assert_int_equal(read(fd, &byte, 1), 0);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(poll(&poll_fd, 1, 0), 1);
	assert_true((poll_fd.revents & (POLLHUP | POLLRDHUP)) == (POLLHUP | POLLRDHUP));
}

static void connections_are_restored_closed_if_asked_for(void **state)
{
	struct round_trip trip = {.options = {.tcp_close = true}};

	port = free_port();
	assert_int_equal(round_trip_try_save(&trip, make_connection, NULL), 0);
	round_trip_restore(&trip);
	assert_reads_as_closed(round_trip_fd(&trip, 1));
	assert_reads_as_closed(round_trip_fd(&trip, 2));
	assert_int_equal(get_option(round_trip_fd(&trip, 0), SOL_SOCKET, SO_ACCEPTCONN), 1);
	round_trip_end(&trip);
}

/* As a dump that was killed in the middle of it, with its worker, would leave it. */
static void connection_left_in_repair_mode_is_healed(void **state)
{
	struct file_target target;
	struct sp_error err = {0};
	unsigned count;
	char byte;
	int client, server;

	port = free_port();
	target = file_target_start_at(0, make_connection);
	client = (int)syscall(SYS_pidfd_getfd, target.process.pidfd, 1, 0);
	server = (int)syscall(SYS_pidfd_getfd, target.process.pidfd, 2, 0);
	sp_tcp_connection_silence(client);
	assert_int_equal(send(client, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(sp_unlock_process(target.process.pid, &count, &err), 0);
	assert_int_equal(count, 1);
	assert_int_equal(send(client, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(recv(server, &byte, 1, MSG_WAITALL), 1);
	assert_int_equal(sp_unlock_process(target.process.pid, &count, &err), 0);
	assert_int_equal(count, 0);
	close(client);
	close(server);
	file_target_end(&target);
}

/* Lets only datagrams of more than 4 bytes pass, with the UDP header. */
static const struct sock_filter long_ones[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 8 + 4, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
};

static void make_filtered_udp(void)
{
	struct sockaddr_in address = local_v4(port);
	struct sock_fprog program = {SP_COUNT_OF(long_ones), (struct sock_filter *)long_ones};

	need(socket(AF_INET, SOCK_DGRAM, 0) == 0);
	need(bind(0, (struct sockaddr *)&address, sizeof(address)) == 0);
	need(setsockopt(0, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
	set_option(0, SOL_SOCKET, SO_LOCK_FILTER, 1);
}

static void filter_comes_back_and_stays_locked(void **state)
{
	struct sockaddr_in address;
	struct round_trip trip;
	char text[16];
	int sender = socket(AF_INET, SOCK_DGRAM, 0), fd;

	port = free_port();
	address = local_v4(port);
	round_trip_save(&trip, make_filtered_udp, NULL);
	round_trip_restore(&trip);
	fd = round_trip_fd(&trip, 0);
	assert_int_equal(sendto(sender, "tiny", 4, 0, (void *)&address, sizeof(address)), 4);
	assert_int_equal(sendto(sender, "large", 5, 0, (void *)&address, sizeof(address)), 5);
	assert_int_equal(recv(fd, text, sizeof(text), 0), 5);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, text, sizeof(int)), -1);
	assert_int_equal(errno, EPERM);
	close(sender);
	round_trip_end(&trip);
}

static void make_idle_tcp(void)
{
	struct sockaddr_in address = local_v4(port);

	need(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) == 0);
	need(socket(AF_INET, SOCK_STREAM, 0) == 1);
	need(bind(1, (struct sockaddr *)&address, sizeof(address)) == 0);
}

static void unconnected_tcp_sockets_come_back(void **state)
{
	struct sockaddr_in address = {0};
	socklen_t size = sizeof(address);
	struct round_trip trip;
	char byte;

	port = free_port();
	round_trip_save(&trip, make_idle_tcp, NULL);
	round_trip_restore(&trip);
	assert_int_equal(read(round_trip_fd(&trip, 0), &byte, 1), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(getsockname(round_trip_fd(&trip, 1), (struct sockaddr *)&address, &size),
	                 0);
	assert_int_equal(ntohs(address.sin_port), port);
	round_trip_end(&trip);
}

/* --- UDP --- */

static void make_udp(void)
{
	struct sockaddr_in address = local_v4(port);

	need(socket(AF_INET, SOCK_DGRAM, 0) == 0);
	need(bind(0, (struct sockaddr *)&address, sizeof(address)) == 0);
	need(socket(AF_INET, SOCK_DGRAM, 0) == 1);
	need(connect(1, (struct sockaddr *)&address, sizeof(address)) == 0);
}

static void udp_keeps_its_address_and_peer(void **state)
{
	struct round_trip trip;
	char byte = 0;

	port = free_port();
	round_trip_save(&trip, make_udp, NULL);
	round_trip_restore(&trip);
	assert_int_equal(send(round_trip_fd(&trip, 1), "x", 1, 0), 1);
	assert_int_equal(recv(round_trip_fd(&trip, 0), &byte, 1, 0), 1);
	assert_int_equal(byte, 'x');
	round_trip_end(&trip);
}

/* --- unix sockets --- */

static struct scratch place;

static struct sockaddr_un unix_address(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	need(snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", place.path, name) <
	     (int)sizeof(address.sun_path));
	return address;
}

static int bind_unix(int type, const char *name)
{
	struct sockaddr_un address = unix_address(name);
	int fd = socket(AF_UNIX, type, 0);

	need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

static int connect_unix(int type, const char *name)
{
	struct sockaddr_un address = unix_address(name);
	int fd = socket(AF_UNIX, type, 0);

	return connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : fd;
}

static void make_unix_listeners(void)
{
	struct sockaddr_un abstract = {.sun_family = AF_UNIX, .sun_path = "\0sealpoint test"};
	struct sockaddr_un relative = {.sun_family = AF_UNIX, .sun_path = "relative"};

	need(listen(bind_unix(SOCK_STREAM, "listener"), 3) == 0);
	need(chmod(unix_address("listener").sun_path, 0620) == 0);
	need(chown(unix_address("listener").sun_path, 12, 34) == 0);
	need(socket(AF_UNIX, SOCK_SEQPACKET, 0) == 1);
	need(bind(1, (struct sockaddr *)&abstract, sizeof(abstract)) == 0 && listen(1, 4) == 0);
	need(socket(AF_UNIX, SOCK_STREAM, 0) == 2);
	need(chdir(place.path) == 0);
	need(bind(2, (struct sockaddr *)&relative, sizeof(relative)) == 0 && listen(2, 5) == 0);
}

static void unix_listeners_keep_name_owner_and_mode(void **state)
{
	struct sockaddr_un address = {0};
	socklen_t size = sizeof(address);
	struct round_trip trip;
	struct stat stat;
	int client;

	place = scratch_make();
	round_trip_save(&trip, make_unix_listeners, NULL);
	round_trip_restore(&trip); /* over the stale socket files of the killed child */
	assert_int_equal(fstatat(place.dirfd, "listener", &stat, 0), 0);
	assert_int_equal(stat.st_mode, S_IFSOCK | 0620);
	assert_int_equal(stat.st_uid, 12);
	assert_int_equal(stat.st_gid, 34);
	client = connect_unix(SOCK_STREAM, "listener");
	assert_true(client >= 0);
	close(client);
	assert_int_equal(getsockname(round_trip_fd(&trip, 1), (struct sockaddr *)&address, &size),
	                 0);
	assert_string_equal(address.sun_path + 1, "sealpoint test");
	size = sizeof(address);
	assert_int_equal(getsockname(round_trip_fd(&trip, 2), (struct sockaddr *)&address, &size),
	                 0);
	assert_string_equal(address.sun_path, "relative");
	client = connect_unix(SOCK_STREAM, "relative");
	assert_true(client >= 0);
	close(client);
	round_trip_end(&trip);
	scratch_remove(&place);
}

static void live_socket_file_is_not_taken_over(void **state)
{
	struct round_trip trip;
	int other, client;

	place = scratch_make();
	round_trip_save(&trip, make_unix_listeners, NULL);
	file_target_let_go(&trip.target);
	assert_int_equal(unlinkat(place.dirfd, "listener", 0), 0);
	other = bind_unix(SOCK_STREAM, "listener");
	assert_int_equal(listen(other, 1), 0);
	file_target_open_checkpoint(&trip.target, &trip.copy);
	assert_true(sp_files_open(&trip.copy.builder, &trip.err) < 0);
	assert_non_null(strstr(trip.err.message, "another program answers"));
	close(accept(other, NULL, NULL));
	client = connect_unix(SOCK_STREAM, "listener");
	assert_true(client >= 0);
	close(client);
	close(other);
	round_trip_end(&trip);
	scratch_remove(&place);
}

/*
 * 0, 1: streams with contents both ways; 2, 3: datagrams; 4: its other end is closed; 5, 6: half
 * shut
 */
static void make_pairs(void)
{
	int pair[2];

	need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	need(write(pair[0], "to ", 3) == 3 && write(pair[0], "one", 3) == 3);
	need(write(pair[1], "to zero", 7) == 7);
	need(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	need(write(pair[0], "first", 5) == 5 && write(pair[0], "second", 6) == 6);
	need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	need(write(pair[1], "last", 4) == 4 && write(pair[1], "words", 5) == 5);
	need(close(pair[1]) == 0);
	need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	need(write(pair[1], "end", 3) == 3 && shutdown(pair[1], SHUT_WR) == 0);
}

static void assert_reads(int fd, const char *text)
{
	char bytes[64] = "";

	assert_int_equal(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), strlen(text));
	assert_string_equal(bytes, text);
}

static void assert_pairs(int (*fd_of)(const struct round_trip *trip, int number),
                         const struct round_trip *trip)
{
	assert_reads(fd_of(trip, 1), "to one");
	assert_reads(fd_of(trip, 0), "to zero");
	assert_reads(fd_of(trip, 3), "first");
	assert_reads(fd_of(trip, 3), "second");
	assert_reads(fd_of(trip, 4), "last");
	assert_reads(fd_of(trip, 4), "words");
	assert_reads(fd_of(trip, 4), "");
	assert_reads(fd_of(trip, 5), "end");
	assert_reads(fd_of(trip, 5), "");
	assert_int_equal(send(fd_of(trip, 6), "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(send(fd_of(trip, 5), "x", 1, MSG_NOSIGNAL), 1);
	assert_reads(fd_of(trip, 6), "x");
}

static void pairs_keep_contents_and_shut_directions(void **state)
{
	struct round_trip trip;

	round_trip_save(&trip, make_pairs, NULL);
	round_trip_restore(&trip);
	round_trip_settle(&trip, &sp_kind_unix_socket);
	assert_pairs(round_trip_fd, &trip);
	round_trip_end(&trip);
}

static int table_fd(const struct round_trip *trip, int number)
{
	return sp_file_table_lookup(&trip->target.table, trip->target.process.pid, number)->fd;
}

static void saving_pairs_takes_nothing_from_the_program(void **state)
{
	struct round_trip trip;

	round_trip_save(&trip, make_pairs, NULL);
	assert_int_equal(get_option(table_fd(&trip, 3), SOL_SOCKET, SO_PEEK_OFF), -1);
	assert_pairs(table_fd, &trip);
	round_trip_end(&trip);
}

static void make_large_queue(void)
{
	static char bytes[1000];
	int pair[2];

	need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	while (send(pair[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

static void full_queue_comes_back(void **state)
{
	struct round_trip trip;
	int before, after, send_buffer;

	round_trip_save(&trip, make_large_queue, NULL);
	assert_int_equal(ioctl(table_fd(&trip, 1), FIONREAD, &before), 0);
	send_buffer = get_option(table_fd(&trip, 0), SOL_SOCKET, SO_SNDBUF);
	round_trip_restore(&trip);
	assert_int_equal(ioctl(round_trip_fd(&trip, 1), FIONREAD, &after), 0);
	assert_int_equal(before, after);
	assert_int_equal(get_option(round_trip_fd(&trip, 0), SOL_SOCKET, SO_SNDBUF), send_buffer);
	round_trip_end(&trip);
}

static void connect_to_outside(void)
{
	need(connect_unix(SOCK_STREAM, "outside") == 0);
}

static void connections_to_other_programs_are_refused_with_their_name(void **state)
{
	char words[64];
	int listener;
	struct file_target target;
	struct sp_error err = {0};

	place = scratch_make();
	listener = bind_unix(SOCK_STREAM, "outside");
	assert_int_equal(listen(listener, 5), 0);
	assert_refused(connect_to_outside, "has not accepted it yet");
	target = file_target_start_at(0, connect_to_outside); /* its end goes to our accept below */
	close(accept(listener, NULL, NULL));
	int accepted = accept(listener, NULL, NULL);
	struct sp_open_file file = {.fd = -1};

	file.fd = (int)syscall(SYS_pidfd_getfd, target.process.pidfd, 0, 0);
	assert_int_equal(fstat(file.fd, &file.stat), 0);
	struct sp_kind_options options = {0};
	struct sp_file_saver saver = {
	        .table = &target.table, .options = &options, .log = &file_target_log};
	struct sp_blob body = {0};

	assert_true(sp_kind_unix_socket.save(&saver, &file, &body, &err) < 0);
	snprintf(words, sizeof(words), "held by process %d", getpid());
	assert_non_null(strstr(err.message, words));
	close(file.fd);
	close(accepted);
	close(listener);
	file_target_end(&target);
	scratch_remove(&place);
}

static void make_datagram_sockets(void)
{
	need(bind_unix(SOCK_DGRAM, "receiver") == 0);
	int sender = connect_unix(SOCK_DGRAM, "receiver");

	need(sender == 1 && write(sender, "waits", 5) == 5);
	need(connect_unix(SOCK_DGRAM, "outside") == 2);
}

static void datagram_sockets_find_their_receivers_again(void **state)
{
	struct round_trip trip;
	int outside;

	place = scratch_make();
	outside = bind_unix(SOCK_DGRAM, "outside");
	round_trip_save(&trip, make_datagram_sockets, NULL);
	round_trip_restore(&trip);
	round_trip_settle(&trip, &sp_kind_unix_socket);
	assert_reads(round_trip_fd(&trip, 0), "waits");
	assert_int_equal(write(round_trip_fd(&trip, 1), "inside", 6), 6);
	assert_reads(round_trip_fd(&trip, 0), "inside");
	assert_int_equal(write(round_trip_fd(&trip, 2), "outside", 7), 7);
	assert_reads(outside, "outside");
	close(outside);
	round_trip_end(&trip);
	scratch_remove(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(listener_keeps_backlog_and_options),
	        cmocka_unit_test(listeners_on_one_port_and_dual_stack_come_back),
	        cmocka_unit_test(listener_comes_back_on_a_port_with_old_connections),
	        cmocka_unit_test(established_connections_are_refused_by_name),
	        cmocka_unit_test(half_closed_connections_are_refused_with_what_helps),
	        cmocka_unit_test(connections_are_restored_closed_if_asked_for),
	        cmocka_unit_test(connection_left_in_repair_mode_is_healed),
	        cmocka_unit_test(filter_comes_back_and_stays_locked),
	        cmocka_unit_test(unconnected_tcp_sockets_come_back),
	        cmocka_unit_test(udp_keeps_its_address_and_peer),
	        cmocka_unit_test(unix_listeners_keep_name_owner_and_mode),
	        cmocka_unit_test(live_socket_file_is_not_taken_over),
	        cmocka_unit_test(pairs_keep_contents_and_shut_directions),
	        cmocka_unit_test(saving_pairs_takes_nothing_from_the_program),
	        cmocka_unit_test(full_queue_comes_back),
	        cmocka_unit_test(connections_to_other_programs_are_refused_with_their_name),
	        cmocka_unit_test(datagram_sockets_find_their_receivers_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
