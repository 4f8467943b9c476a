/*
 * A process of a user without any privilege.
 *
 * subject: except=user user=nobody
 */
#include "subject.h"

#include <fcntl.h>

int main(void)
{
	uid_t user = getuid();
	gid_t group = getgid();

	subject_need(user != 0, "not running as another user");
	subject_ready();
	subject_check(getuid() == user && geteuid() == user, "user is %d, %d", getuid(), geteuid());
	subject_check(getgid() == group && getegid() == group, "group is %d, %d", getgid(),
	              getegid());
	subject_check(setuid(0) == -1, "can become root");
	subject_check(open("/etc/shadow", O_RDONLY) == -1, "can read what only root can");
	return subject_end();
}
