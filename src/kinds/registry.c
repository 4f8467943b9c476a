/*
 * The registry: which kinds exist. Adding a kind is its file, its message and one row here. The
 * order of file kinds is the order in which they are asked whether an open file is theirs; the
 * order of facets is the order in which they are rebuilt within their phase.
 */
#include "kinds/registry.h"

const struct sp_file_kind *const sp_file_kinds[] = {
        &sp_memfd_kind,
        &sp_shared_memory_kind,
        &sp_path_only_kind,
        &sp_pipe_kind,
        &sp_directory_kind,
        &sp_device_kind,
        &sp_terminal_kind,
        &sp_regular_kind,
        &sp_eventfd_kind,
        &sp_epoll_kind,
        &sp_timerfd_kind,
        &sp_signalfd_kind,
        &sp_inotify_kind,
        &sp_tcp_listen_kind,
        &sp_tcp_socket_kind,
        &sp_udp_kind,
        &sp_unix_listen_kind,
        &sp_unix_socket_kind,
        NULL,
};

const struct sp_facet *const sp_facets[] = {
        /* SP_PHASE_STUB */
        &sp_facet_namespaces,
        &sp_facet_session,
        &sp_facet_xstate_permission,
        /* SP_PHASE_MEMORY */
        &sp_facet_memory_layout,
        /* SP_PHASE_DESCRIPTORS */
        &sp_facet_fs_context,
        /* SP_PHASE_THREADS */
        &sp_facet_signal_actions,
        &sp_facet_thread_name,
        &sp_facet_thread_pointers,
        &sp_facet_rseq,
        &sp_facet_thread_settings,
        &sp_facet_process_settings,
        &sp_facet_pending_signals,
        &sp_facet_shared_pending_signals,
        &sp_facet_interval_timers,
        &sp_facet_posix_timers,
        &sp_facet_limits,
        &sp_facet_scheduling,
        &sp_facet_shared_seccomp,
        /* SP_PHASE_PRIVILEGES */
        &sp_facet_seccomp,
        &sp_facet_credentials,
        &sp_facet_hardening,
        NULL,
};
