/* A process for libnftables: see nft_process.h. */
#include "kinds/nft_process.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <fcntl.h>
#include <nftables/libnftables.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct answer {
	int code; /* errno, 0 if it was done */
	char text[512];
};

/* --- in the process --- */

static void run(struct nft_ctx *nft, const char *commands, struct answer *answer)
{
	const char *reason;

	*answer = (struct answer){0};
	errno = 0;
	if (!nft_run_cmd_from_buffer(nft, commands))
		return;
	answer->code = errno ? errno : EIO;
	reason = nft_ctx_get_error_buffer(nft);
	reason = strstr(reason, "Error: ") ? strstr(reason, "Error: ") + 7 : reason;
	snprintf(answer->text, sizeof(answer->text), "%.*s", (int)strcspn(reason, "\n"), reason);
}

/* Nothing that the caller has open is kept open by this process, and it says nothing. */
static void keep_only(int *socket)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (dup2(*socket, 3) == 3)
		*socket = 3;
	close_range(4, ~0U, 0);
}

/* All of them; false if the caller has gone. */
static bool receive(int socket, void *bytes, size_t size)
{
	return recv(socket, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

static char *receive_commands(int socket)
{
	size_t size;
	sp_cleanup_free char *commands = NULL;

	if (!receive(socket, &size, sizeof(size)))
		return NULL;
	commands = sp_alloc_zeroed(1, size + 1);
	return !size || receive(socket, commands, size) ? sp_steal_ptr(&commands) : NULL;
}

static _Noreturn void serve(int socket)
{
	struct answer answer;
	struct nft_ctx *nft;
	char *commands;

	/* A Ctrl-C is for the caller, who is still going to need this process. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	keep_only(&socket);
	nft = nft_ctx_new(NFT_CTX_DEFAULT);
	nft_ctx_buffer_output(nft);
	nft_ctx_buffer_error(nft);
	while ((commands = receive_commands(socket))) {
		run(nft, commands, &answer);
		free(commands);
		if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* --- in the caller --- */

int sp_nft_wait(struct sp_nft_process *process, struct sp_error *err)
{
	struct answer answer = {0};
	ssize_t got;

	do
		got = recv(process->socket, &answer, sizeof(answer), MSG_WAITALL);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return sp_fail_errno(err, errno, "cannot hear from nftables");
	if (got != sizeof(answer))
		return sp_fail(err, EOPNOTSUPP,
		               "nftables cannot be used here (see sealpoint check)");
	answer.text[sizeof(answer.text) - 1] = '\0';
	return answer.code ? sp_fail(err, answer.code, "nftables: %s", answer.text) : 0;
}

int sp_nft_start(struct sp_nft_process *process, struct sp_error *err)
{
	int ends[2];

	if (process->pid)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return sp_fail_errno(err, errno, "cannot make a pair of sockets");
	*process = (struct sp_nft_process){.pid = fork(), .socket = ends[0]};
	if (process->pid == 0)
		serve(ends[1]);
	close(ends[1]);
	if (process->pid > 0)
		return 0;
	close(process->socket);
	*process = (struct sp_nft_process){0};
	return sp_fail_errno(err, errno, "cannot start a process for nftables");
}

static int send_all(int socket, const void *bytes, size_t size)
{
	const char *left = bytes;

	while (size) {
		ssize_t sent = send(socket, left, size, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return -errno;
		left += sent > 0 ? sent : 0;
		size -= sent > 0 ? (size_t)sent : 0;
	}
	return 0;
}

int sp_nft_send(struct sp_nft_process *process, const char *commands, struct sp_error *err)
{
	size_t size = strlen(commands);
	int rc = send_all(process->socket, &size, sizeof(size));

	if (!rc)
		rc = send_all(process->socket, commands, size);
	return rc ? sp_fail_errno(err, -rc, "cannot speak to nftables") : 0;
}

int sp_nft_run(struct sp_nft_process *process, const char *commands, struct sp_error *err)
{
	int rc = sp_nft_send(process, commands, err);

	return rc ? rc : sp_nft_wait(process, err);
}

void sp_nft_end(struct sp_nft_process *process)
{
	if (!process->pid)
		return;
	close(process->socket);
	while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR)
		;
	*process = (struct sp_nft_process){0};
}

int sp_nft_run_once(const char *commands, struct sp_error *err)
{
	struct sp_nft_process process = {0};
	int rc = sp_nft_start(&process, err);

	if (!rc)
		rc = sp_nft_run(&process, commands, err);
	sp_nft_end(&process);
	return rc;
}
