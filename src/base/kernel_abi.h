/*
 * Kernel interfaces that are newer than the headers of the oldest system that sealpoint is built on
 * (Debian 12: Linux 6.1). Numbers and layouts are the kernel's, from its UAPI headers; each block
 * names the header and the version that brought it.
 */
#ifndef SEALPOINT_BASE_KERNEL_ABI_H
#define SEALPOINT_BASE_KERNEL_ABI_H

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* linux/pidfd.h, 6.9: a pidfd of a thread, for pidfd_open(2). */
#define SP_PIDFD_THREAD O_EXCL

/* linux/fs.h, 6.7: PAGEMAP_SCAN on /proc/PID/pagemap. */
#ifndef PAGEMAP_SCAN
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_WPALLOWED (1 << 0)
#define PAGE_IS_WRITTEN (1 << 1)
#define PAGE_IS_FILE (1 << 2)
#define PAGE_IS_PRESENT (1 << 3)
#define PAGE_IS_SWAPPED (1 << 4)
#define PAGE_IS_PFNZERO (1 << 5)
#define PAGE_IS_HUGE (1 << 6)
#define PAGE_IS_SOFT_DIRTY (1 << 7)
#define PM_SCAN_WP_MATCHING (1 << 0)
#define PM_SCAN_CHECK_WPASYNC (1 << 1)
struct page_region {
	__u64 start;
	__u64 end;
	__u64 categories;
};
struct pm_scan_arg {
	__u64 size;
	__u64 flags;
	__u64 start;
	__u64 end;
	__u64 walk_end;
	__u64 vec;
	__u64 vec_len;
	__u64 max_pages;
	__u64 category_inverted;
	__u64 category_mask;
	__u64 category_anyof_mask;
	__u64 return_mask;
};
#endif
#ifndef PAGE_IS_GUARD
#define PAGE_IS_GUARD (1 << 8) /* 6.15 */
#endif

/* linux/mman.h and asm-generic/mman-common.h */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* 6.13 */
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* 6.1 */
#endif

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08 /* 6.11 */
#endif

/* linux/userfaultfd.h */
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00) /* 6.1: on /dev/userfaultfd */
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* 5.11 */
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12) /* 5.19 */
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13) /* 6.4 */
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15) /* 6.7 */
#endif

/* linux/pidfd.h: the first version of its structure, 6.13; how a process has ended, 6.15 */
#define SP_PIDFD_GET_INFO _IOWR(0xFF, 11, struct sp_pidfd_info)
#define SP_PIDFD_INFO_EXIT (1UL << 3)
struct sp_pidfd_info {
	__u64 mask;
	__u64 cgroup;
	__u32 ids[11];
	__s32 exit_code;
};

/* linux/timerfd.h, which does not go together with sys/timerfd.h; 3.17 */
#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, __u64)
#endif

/* asm-generic/socket.h, linux/in.h */
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* 5.14 */
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* 6.3 */
#endif

/* asm/unistd_64.h */
#ifndef SYS_mseal
#define SYS_mseal 462 /* 6.10 */
#endif

/* linux/prctl.h */
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65 /* 6.3 */
#define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67 /* 6.4 */
#define PR_GET_MEMORY_MERGE 68
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41 /* 5.17 */
#define PR_SET_VMA_ANON_NAME 0
#endif
#ifndef PR_TIMER_CREATE_RESTORE_IDS
#define PR_TIMER_CREATE_RESTORE_IDS 77 /* 6.15 */
#define PR_TIMER_CREATE_RESTORE_IDS_OFF 0
#define PR_TIMER_CREATE_RESTORE_IDS_ON 1
#define PR_TIMER_CREATE_RESTORE_IDS_GET 2
#endif

/* linux/membarrier.h, 6.3 */
#define SP_MEMBARRIER_CMD_GET_REGISTRATIONS (1 << 9)

/* linux/ptrace.h, 6.4 */
#define SP_PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG 0x4211

/* linux/ptrace.h, 5.13 */
#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif
struct sp_ptrace_rseq_configuration {
	__u64 rseq_abi_pointer;
	__u32 rseq_abi_size;
	__u32 signature;
	__u32 flags;
	__u32 pad;
};

/* asm/prctl.h: arch_prctl(2) of x86 */
#ifndef ARCH_GET_XCOMP_SUPP
#define ARCH_GET_XCOMP_SUPP 0x1021 /* 5.16 */
#define ARCH_GET_XCOMP_PERM 0x1022
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif
#ifndef ARCH_SHSTK_STATUS
#define ARCH_SHSTK_STATUS 0x5005 /* 6.6 */
#endif

/* linux/memfd.h, 6.3 */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#define MFD_EXEC 0x0010U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

/* <linux/un.h>, which does not go with <sys/un.h>: opens the file that a unix socket is bound to with O_PATH. */
#ifndef SIOCUNIXFILE
#define SIOCUNIXFILE 0x89E0
#endif

#endif
