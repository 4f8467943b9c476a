/* Every kind by name, one line each: its own file defines it, registry.c lists it. */
#ifndef SEALPOINT_KINDS_REGISTRY_H
#define SEALPOINT_KINDS_REGISTRY_H

#include "kinds/kind.h"

extern const struct sp_file_kind sp_kind_device;
extern const struct sp_file_kind sp_kind_directory;
extern const struct sp_file_kind sp_kind_path_only;
extern const struct sp_file_kind sp_kind_pipe;
extern const struct sp_file_kind sp_kind_regular;
extern const struct sp_file_kind sp_kind_terminal;
extern const struct sp_file_kind sp_kind_epoll;
extern const struct sp_file_kind sp_kind_eventfd;
extern const struct sp_file_kind sp_kind_inotify;
extern const struct sp_file_kind sp_kind_memfd;
extern const struct sp_file_kind sp_kind_shared_memory;
extern const struct sp_file_kind sp_kind_signalfd;
extern const struct sp_file_kind sp_kind_tcp_listen;
extern const struct sp_file_kind sp_kind_tcp_socket;
extern const struct sp_file_kind sp_kind_timerfd;
extern const struct sp_file_kind sp_kind_udp;
extern const struct sp_file_kind sp_kind_unix_listen;
extern const struct sp_file_kind sp_kind_unix_socket;

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
extern const struct sp_facet sp_facet_memory_locks;
extern const struct sp_facet sp_facet_limits;
extern const struct sp_facet sp_facet_scheduling;
extern const struct sp_facet sp_facet_shared_seccomp;
extern const struct sp_facet sp_facet_seccomp;
extern const struct sp_facet sp_facet_credentials;
extern const struct sp_facet sp_facet_hardening;

#endif
