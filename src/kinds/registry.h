/* The declarations of all kinds, for registry.c alone: one line per kind. */
#ifndef SEALPOINT_KINDS_REGISTRY_H
#define SEALPOINT_KINDS_REGISTRY_H

#include "kinds/kind.h"

extern const struct sp_file_kind sp_device_kind;
extern const struct sp_file_kind sp_directory_kind;
extern const struct sp_file_kind sp_path_only_kind;
extern const struct sp_file_kind sp_pipe_kind;
extern const struct sp_file_kind sp_regular_kind;
extern const struct sp_file_kind sp_terminal_kind;
extern const struct sp_file_kind sp_epoll_kind;
extern const struct sp_file_kind sp_eventfd_kind;
extern const struct sp_file_kind sp_inotify_kind;
extern const struct sp_file_kind sp_memfd_kind;
extern const struct sp_file_kind sp_shared_memory_kind;
extern const struct sp_file_kind sp_signalfd_kind;
extern const struct sp_file_kind sp_tcp_listen_kind;
extern const struct sp_file_kind sp_tcp_socket_kind;
extern const struct sp_file_kind sp_timerfd_kind;
extern const struct sp_file_kind sp_udp_kind;
extern const struct sp_file_kind sp_unix_listen_kind;
extern const struct sp_file_kind sp_unix_socket_kind;

extern const struct sp_facet sp_facet_namespaces;
extern const struct sp_facet sp_facet_session;
extern const struct sp_facet sp_facet_xstate_permission;
extern const struct sp_facet sp_facet_memory_layout;
extern const struct sp_facet sp_facet_fs_context;
extern const struct sp_facet sp_facet_signal_actions;
extern const struct sp_facet sp_facet_thread_name;
extern const struct sp_facet sp_facet_thread_pointers;
extern const struct sp_facet sp_facet_rseq;
extern const struct sp_facet sp_facet_thread_settings;
extern const struct sp_facet sp_facet_process_settings;
extern const struct sp_facet sp_facet_pending_signals;
extern const struct sp_facet sp_facet_shared_pending_signals;
extern const struct sp_facet sp_facet_interval_timers;
extern const struct sp_facet sp_facet_posix_timers;
extern const struct sp_facet sp_facet_limits;
extern const struct sp_facet sp_facet_scheduling;
extern const struct sp_facet sp_facet_shared_seccomp;
extern const struct sp_facet sp_facet_seccomp;
extern const struct sp_facet sp_facet_credentials;
extern const struct sp_facet sp_facet_hardening;

#endif
