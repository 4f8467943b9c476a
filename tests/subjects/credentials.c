/*
 * Credentials of an unusual process: three different user and group ids, supplementary groups, some
 * capabilities permitted, fewer effective, some inheritable and ambient, a smaller bounding set,
 * securebits, no_new_privs.
 *
 * subject: except=user (it has nothing to give up)
 */
#include "subject.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define BIT(capability) (1U << (capability))

struct capabilities {
	struct __user_cap_data_struct data[2];
};

static struct capabilities capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct capabilities result;

	subject_need(syscall(SYS_capget, &header, result.data) == 0, "capget");
	return result;
}

static void set_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct capabilities wanted = {{{
	        .effective = BIT(CAP_CHOWN),
	        .permitted = BIT(CAP_CHOWN) | BIT(CAP_KILL) | BIT(CAP_NET_ADMIN),
	        .inheritable = BIT(CAP_KILL),
	}}};

	subject_need(syscall(SYS_capset, &header, wanted.data) == 0, "capset");
	subject_need(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) == 0, "ambient");
}

int main(void)
{
	const gid_t groups[] = {3, 5, 70000};
	const unsigned long bits = SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP | SECBIT_NOROOT;
	struct capabilities before, now;
	uid_t r, e, s;

	subject_need(prctl(PR_CAPBSET_DROP, CAP_SYS_MODULE) == 0, "PR_CAPBSET_DROP");
	subject_need(prctl(PR_SET_SECUREBITS, bits) == 0, "PR_SET_SECUREBITS");
	subject_need(setgroups(3, groups) == 0, "setgroups");
	subject_need(setresgid(10, 11, 12) == 0, "setresgid");
	subject_need(setresuid(1000, 1001, 1002) == 0, "setresuid");
	setfsuid(1000);
	set_capabilities();
	subject_need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	before = capabilities();

	subject_ready();

	subject_check(getresuid(&r, &e, &s) == 0 && r == 1000 && e == 1001 && s == 1002,
	              "user ids are %d %d %d", r, e, s);
	subject_check(getresgid(&r, &e, &s) == 0 && r == 10 && e == 11 && s == 12,
	              "group ids are %d %d %d", r, e, s);
	subject_check(setfsuid((uid_t)-1) == 1000, "file system user id");
	now = capabilities();
	subject_check(memcmp(&before, &now, sizeof(now)) == 0, "capabilities: effective %x",
	              now.data[0].effective);
	subject_check((unsigned long)prctl(PR_GET_SECUREBITS) == bits, "securebits %x",
	              prctl(PR_GET_SECUREBITS));
	subject_check(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "no_new_privs is gone");
	subject_check(prctl(PR_CAPBSET_READ, CAP_SYS_MODULE) == 0, "the bounding set has grown");
	subject_check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0) == 1,
	              "the ambient capability is gone");
	return subject_end();
}
