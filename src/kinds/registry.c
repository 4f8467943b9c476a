/*
 * The registry: which kinds exist. Adding a kind is its file, its message and one row here. The
 * order of file kinds is the order in which they are asked whether an open file is theirs; the
 * order of facets is the order in which they are rebuilt within their phase.
 */
#include "kinds/registry.h"

const struct sp_file_kind *const sp_file_kinds[] = {
        /* memory */
        &sp_kind_memfd,
        &sp_kind_shared_memory,
        &sp_kind_system_v_memory,
        /* what has a path */
        &sp_kind_namespace,
        &sp_kind_process_file,
        &sp_kind_path_only,
        &sp_kind_pipe,
        &sp_kind_directory,
        &sp_kind_device,
        &sp_kind_pty,
        &sp_kind_line,
        &sp_kind_terminal,
        &sp_kind_message_queue,
        &sp_kind_regular,
        /* objects of the kernel */
        &sp_kind_eventfd,
        &sp_kind_epoll,
        &sp_kind_timerfd,
        &sp_kind_signalfd,
        &sp_kind_inotify,
        &sp_kind_fanotify,
        &sp_kind_pidfd,
        /* sockets */
        &sp_kind_tcp_listen,
        &sp_kind_tcp_socket,
        &sp_kind_udp,
        &sp_kind_ping,
        &sp_kind_raw,
        &sp_kind_packet,
        &sp_kind_netlink,
        &sp_kind_unix_listen,
        &sp_kind_unix_socket,
        /* what belongs to somebody else */
        &sp_kind_external,
        NULL,
};

const struct sp_facet *const sp_facets[] = {
        /* SP_PHASE_STUB */
        &sp_facet_xstate_permission,
        /* SP_PHASE_MEMORY */
        &sp_facet_memory_layout,
        &sp_facet_async_io,
        /* SP_PHASE_DESCRIPTORS */
        &sp_facet_fs_context,
        &sp_facet_signal_actions,
        /* SP_PHASE_THREADS */
        &sp_facet_thread_name,
        &sp_facet_thread_pointers,
        &sp_facet_rseq,
        &sp_facet_thread_settings,
        &sp_facet_segments,
        &sp_facet_shared_segments,
        &sp_facet_process_settings,
        &sp_facet_pending_signals,
        &sp_facet_shared_pending_signals,
        &sp_facet_interval_timers,
        &sp_facet_posix_timers,
        &sp_facet_semaphore_undo,
        &sp_facet_memory_locks,
        &sp_facet_limits,
        &sp_facet_scheduling,
        &sp_facet_shared_seccomp,
        /* SP_PHASE_PRIVILEGES */
        &sp_facet_seccomp,
        &sp_facet_credentials,
        &sp_facet_hardening,
        &sp_facet_landlock,
        NULL,
};
