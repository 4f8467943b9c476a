/*
 * timerfd(2): a clock, a time to expire, an interval, and the expirations that wait to be read.
 *
 * A timer goes on with the time that was left: it is armed again at the very end of a restore, so
 * that the restore itself does not use that time up. Only an absolute timer on the wall clock keeps
 * its deadline, since the wall clock has gone on in between.
 *
 * That the clock was set while a cancel-on-set timer was armed, which its reader learns by ECANCELED,
 * cannot be brought about again without setting the clock: the dump waits until it was read.
 */
#include "kinds/registry.h"

#include "base/clock.h"
#include "base/kernel_abi.h"
#include "proc/fdinfo.h"

#include "timerfd.pb-c.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>

static bool claims(const struct sp_open_file *file)
{
	return !strcmp(file->link, "anon_inode:[timerfd]");
}

/*
 * The clocks that wake a sleeping machine show the same time as those that do not, on any machine.
 */
static uint64_t clock_now(uint32_t clock)
{
	if (clock == CLOCK_REALTIME_ALARM)
		clock = CLOCK_REALTIME;
	if (clock == CLOCK_BOOTTIME_ALARM)
		clock = CLOCK_BOOTTIME;
	return sp_clock_ns((clockid_t)clock);
}

static bool keeps_deadline(const Sealpoint__Timerfd *message)
{
	return (message->settime_flags & TFD_TIMER_ABSTIME) &&
	       (message->clock == CLOCK_REALTIME || message->clock == CLOCK_REALTIME_ALARM);
}

static int read_fdinfo(int fd, Sealpoint__Timerfd *message, struct sp_error *err)
{
	sp_cleanup_free char *fdinfo = NULL;
	uint64_t clock, settime_flags;

	if (sp_fdinfo_read_own(fd, &fdinfo, err) < 0 ||
	    sp_fdinfo_number(fdinfo, "clockid:", 10, &clock, err) < 0 ||
	    sp_fdinfo_number(fdinfo, "settime flags:", 8, &settime_flags, err) < 0 ||
	    sp_fdinfo_number(fdinfo, "ticks:", 10, &message->ticks, err) < 0)
		return -err->code;
	message->clock = (uint32_t)clock;
	message->settime_flags = (uint32_t)settime_flags;
	return 0;
}

/*
 * Timers go on while the program is stopped, and no single question gives both the time left and
 * the expirations. A one-shot timer that expires between the two would be lost, or saved with both.
 * So the expirations are read before and after, until they agree; only a timer that expires again
 * within those few microseconds never does, and one expiration more or less is nothing to it.
 *
 * timerfd_gettime() also makes the kernel count the expirations of a periodic timer up to now: it
 * does so only when somebody asks, and fdinfo does not.
 */
static int read_timer(int fd, Sealpoint__Timerfd *message, struct sp_error *err)
{
	struct itimerspec setting;
	uint64_t ticks_before;

	if (read_fdinfo(fd, message, err) < 0)
		return -err->code;
	for (int attempt = 0; attempt < 4; attempt++) {
		ticks_before = message->ticks;
		if (timerfd_gettime(fd, &setting) < 0)
			return sp_fail_errno(err, errno, "cannot read the timer");
		if (read_fdinfo(fd, message, err) < 0)
			return -err->code;
		if (message->ticks == ticks_before)
			break;
	}
	message->remaining_ns = sp_timespec_to_ns(setting.it_value);
	message->interval_ns = sp_timespec_to_ns(setting.it_interval);
	/* It has just expired again. To say that it is not armed would clear its ticks. */
	if (!message->remaining_ns && message->interval_ns && message->ticks)
		message->remaining_ns = 1;
	return 0;
}

/* A timer that expires once and has not expired yet has something to be read all the same. */
static bool is_canceled(const Sealpoint__Timerfd *message)
{
	return message->settime_flags & TFD_TIMER_CANCEL_ON_SET && message->ticks &&
	       message->remaining_ns && !message->interval_ns;
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__Timerfd message = SEALPOINT__TIMERFD__INIT;

	if (read_timer(file->fd, &message, err) < 0)
		return -err->code;
	if (is_canceled(&message))
		return sp_fail(err, SP_NOT_YET,
		               "the clock was set, and the program has not learnt of it yet by "
		               "reading the timer; let it do so before the dump");
	if (message.remaining_ns && keeps_deadline(&message))
		message.deadline_ns = clock_now(message.clock) + message.remaining_ns;
	sp_blob_pack(body, &message.base);
	return 0;
}

static int open_timerfd(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                        struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Timerfd *message =
	        sp_blob_unpack(file->body, &sealpoint__timerfd__descriptor, err);

	if (!message)
		return -EBADMSG;
	*fd = timerfd_create((int)message->clock, TFD_CLOEXEC);
	if (*fd < 0)
		return sp_fail_errno(err, errno, "cannot make a timerfd of clock %u",
		                     message->clock);
	return 0;
}

/* The value to arm the timer with: relative, or by its clock if it was set so. */
static uint64_t expiration(const Sealpoint__Timerfd *message)
{
	if (message->deadline_ns)
		return message->deadline_ns;
	if (!message->remaining_ns || !(message->settime_flags & TFD_TIMER_ABSTIME))
		return message->remaining_ns;
	return clock_now(message->clock) + message->remaining_ns;
}

static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__Timerfd *message =
	        sp_blob_unpack(file->body, &sealpoint__timerfd__descriptor, err);
	int fd = builder->fds[file->id];
	struct itimerspec setting;

	if (!message)
		return -EBADMSG;
	setting.it_interval = sp_timespec_from_ns(message->interval_ns);
	setting.it_value = sp_timespec_from_ns(expiration(message));
	if (timerfd_settime(fd, (int)message->settime_flags, &setting, NULL) < 0)
		return sp_fail_errno(err, errno, "cannot set the timer");
	if (message->ticks && ioctl(fd, TFD_IOC_SET_TICKS, &message->ticks) < 0)
		return sp_fail_errno(
		        err, errno,
		        "cannot set the expirations that wait to be read (this takes a "
		        "kernel with CONFIG_CHECKPOINT_RESTORE)");
	return 0;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__Timerfd *message =
	        sp_blob_unpack(body, &sealpoint__timerfd__descriptor, NULL);

	if (message)
		snprintf(text, size,
		         "clock %u, %" PRIu64 " ms left, interval %" PRIu64 " ms, %" PRIu64
		         " expirations to read",
		         message->clock, message->remaining_ns / 1000000,
		         message->interval_ns / 1000000, message->ticks);
}

const struct sp_file_kind sp_kind_timerfd = {
        .name = "timerfd",
        .title = "timerfd",
        .claims = claims,
        .save = save,
        .open = open_timerfd,
        .settle = settle,
        .describe = describe,
};
