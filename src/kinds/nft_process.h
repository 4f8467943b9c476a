/*
 * nftables, spoken to by a process of its own, which ends with the one that has started it. In that one
 * libnftables would be a danger: it ends its process if an answer of the kernel is not what it expects.
 * And when the socket closes that owns a table, the kernel waits for its readers, which takes 7 to 40 ms:
 * nobody else need wait for that.
 */
#ifndef SEALPOINT_KINDS_NFT_PROCESS_H
#define SEALPOINT_KINDS_NFT_PROCESS_H

#include <sys/types.h>

struct sp_error;

struct sp_nft_process {
	pid_t pid; /* 0: there is none */
	int socket;
};

/** Starts the process, if there is none. It costs some milliseconds, so a dump does it before the freeze. */
int sp_nft_start(struct sp_nft_process *process, struct sp_error *err);
/** Runs commands (nft(8)) in it as one transaction. */
int sp_nft_run(struct sp_nft_process *process, const char *commands, struct sp_error *err);
/** The two halves of it: hands the commands over, and waits until they have been run. */
int sp_nft_send(struct sp_nft_process *process, const char *commands, struct sp_error *err);
int sp_nft_wait(struct sp_nft_process *process, struct sp_error *err);
/** Ends the process, and with it the tables that it owns. Does nothing if there is none. */
void sp_nft_end(struct sp_nft_process *process);
/** Starts, runs and ends. */
int sp_nft_run_once(const char *commands, struct sp_error *err);

#endif
