/*
 * Fields of /proc/PID/task/TID/stat: see stat.h. The name of the task stands in parentheses and may
 * itself hold blanks, newlines and parentheses, so fields are counted from the last closing one.
 */
#include "proc/stat.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of the fields as proc_pid_stat(5) counts them, from 1. */
enum {
	FIELD_STATE = 3,
	FIELD_PPID = 4,
	FIELD_PGRP = 5,
	FIELD_SESSION = 6,
	FIELD_TTY = 7,
	FIELD_FOREGROUND = 8,
	FIELD_FLAGS = 9,
	FIELD_START_TIME = 22,
	FIELD_START_CODE = 26,
	FIELD_END_CODE = 27,
	FIELD_START_STACK = 28,
	FIELD_EXIT_SIGNAL = 38,
	FIELD_START_DATA = 45,
	FIELD_END_DATA = 46,
	FIELD_START_BRK = 47,
	FIELD_ARG_START = 48,
	FIELD_ARG_END = 49,
	FIELD_ENV_START = 50,
	FIELD_ENV_END = 51,
	FIELD_EXIT_CODE = 52,
	FIELDS
};

/* Some fields are signed: their negative values come out as the same bits. */
static int parse_numbers(const char *cursor, uint64_t fields[FIELDS])
{
	for (int i = FIELD_PPID; i < FIELDS; i++) {
		char *behind;

		errno = 0;
		fields[i] = *cursor == '-' ? (uint64_t)strtoll(cursor, &behind, 10)
		                           : strtoull(cursor, &behind, 10);
		if (errno || behind == cursor)
			return -EBADMSG;
		cursor = behind + (*behind == ' ');
	}
	return 0;
}

int sp_stat_parse(const char *text, struct sp_stat *stat, struct sp_error *err)
{
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	uint64_t fields[FIELDS];

	*stat = (struct sp_stat){};
	if (!open || !close || close < open || close[1] != ' ' || !close[2] || close[3] != ' ' ||
	    parse_numbers(close + 4, fields) < 0)
		return sp_fail(err, EBADMSG, "/proc/PID/stat is not as expected: \"%.100s\"", text);
	snprintf(stat->comm, sizeof(stat->comm), "%.*s", (int)(close - open - 1), open + 1);
	stat->state = close[2];
	stat->ppid = (int32_t)fields[FIELD_PPID];
	stat->pgrp = (int32_t)fields[FIELD_PGRP];
	stat->session = (int32_t)fields[FIELD_SESSION];
	stat->tty = (int32_t)fields[FIELD_TTY];
	stat->foreground = (int32_t)fields[FIELD_FOREGROUND];
	stat->flags = (uint32_t)fields[FIELD_FLAGS];
	stat->exit_signal = (int32_t)fields[FIELD_EXIT_SIGNAL];
	stat->exit_code = (int32_t)fields[FIELD_EXIT_CODE];
	stat->start_time = fields[FIELD_START_TIME];
	stat->start_code = fields[FIELD_START_CODE];
	stat->end_code = fields[FIELD_END_CODE];
	stat->start_stack = fields[FIELD_START_STACK];
	stat->start_data = fields[FIELD_START_DATA];
	stat->end_data = fields[FIELD_END_DATA];
	stat->start_brk = fields[FIELD_START_BRK];
	stat->arg_start = fields[FIELD_ARG_START];
	stat->arg_end = fields[FIELD_ARG_END];
	stat->env_start = fields[FIELD_ENV_START];
	stat->env_end = fields[FIELD_ENV_END];
	return 0;
}

int sp_stat_read(pid_t pid, pid_t tid, struct sp_stat *stat, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc = sp_proc_read_thread(pid, tid, "stat", &text, NULL, err);

	return rc < 0 ? rc : sp_stat_parse(text, stat, err);
}

int sp_stat_read_process(pid_t pid, struct sp_stat *stat, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc = sp_proc_read(pid, "stat", &text, NULL, err);

	return rc < 0 ? rc : sp_stat_parse(text, stat, err);
}

static bool is_living(pid_t pid, pid_t tid)
{
	struct sp_stat stat;

	return !sp_stat_read(pid, tid, &stat, NULL) && !sp_stat_has_ended(&stat);
}

pid_t sp_living_thread(pid_t pid)
{
	sp_cleanup_dir DIR *tasks = NULL;
	struct dirent *entry;
	char path[64];

	if (is_living(pid, pid))
		return pid;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks)))
		if (atoi(entry->d_name) > 0 && is_living(pid, atoi(entry->d_name)))
			return atoi(entry->d_name);
	return pid;
}

struct sp_process_name sp_process_name(pid_t pid)
{
	struct sp_process_name name;
	struct sp_stat stat;

	if (sp_stat_read(pid, pid, &stat, NULL))
		snprintf(name.text, sizeof(name.text), "process %d", pid);
	else
		snprintf(name.text, sizeof(name.text), "process %d (%s)", pid, stat.comm);
	return name;
}
