/* Every kind by name, one line each: its own file defines it, registry.c lists it. */
#ifndef SEALPOINT_KINDS_REGISTRY_H
#define SEALPOINT_KINDS_REGISTRY_H

#include "kinds/kind.h"

extern const struct sp_file_kind sp_kind_device;
extern const struct sp_file_kind sp_kind_directory;
extern const struct sp_file_kind sp_kind_external;
extern const struct sp_file_kind sp_kind_line;
extern const struct sp_file_kind sp_kind_namespace;
extern const struct sp_file_kind sp_kind_packet;
extern const struct sp_file_kind sp_kind_path_only;
extern const struct sp_file_kind sp_kind_pipe;
extern const struct sp_file_kind sp_kind_process_file;
extern const struct sp_file_kind sp_kind_pty;
extern const struct sp_file_kind sp_kind_regular;
extern const struct sp_file_kind sp_kind_terminal;
extern const struct sp_file_kind sp_kind_epoll;
extern const struct sp_file_kind sp_kind_eventfd;
extern const struct sp_file_kind sp_kind_fanotify;
extern const struct sp_file_kind sp_kind_inotify;
extern const struct sp_file_kind sp_kind_memfd;
extern const struct sp_file_kind sp_kind_message_queue;
extern const struct sp_file_kind sp_kind_pidfd;
extern const struct sp_file_kind sp_kind_shared_memory;
extern const struct sp_file_kind sp_kind_signalfd;
extern const struct sp_file_kind sp_kind_system_v_memory;
extern const struct sp_file_kind sp_kind_tcp_listen;
extern const struct sp_file_kind sp_kind_tcp_socket;
extern const struct sp_file_kind sp_kind_timerfd;
extern const struct sp_file_kind sp_kind_udp;
extern const struct sp_file_kind sp_kind_ping;
extern const struct sp_file_kind sp_kind_raw;
extern const struct sp_file_kind sp_kind_netlink;
extern const struct sp_file_kind sp_kind_unix_listen;
extern const struct sp_file_kind sp_kind_unix_socket;

extern const struct sp_facet sp_facet_xstate_permission;
extern const struct sp_facet sp_facet_memory_layout;
extern const struct sp_facet sp_facet_async_io;
extern const struct sp_facet sp_facet_fs_context;
extern const struct sp_facet sp_facet_signal_actions;
extern const struct sp_facet sp_facet_thread_name;
extern const struct sp_facet sp_facet_thread_pointers;
extern const struct sp_facet sp_facet_rseq;
extern const struct sp_facet sp_facet_thread_settings;
extern const struct sp_facet sp_facet_segments;
extern const struct sp_facet sp_facet_shared_segments;
extern const struct sp_facet sp_facet_process_settings;
extern const struct sp_facet sp_facet_pending_signals;
extern const struct sp_facet sp_facet_shared_pending_signals;
extern const struct sp_facet sp_facet_interval_timers;
extern const struct sp_facet sp_facet_posix_timers;
extern const struct sp_facet sp_facet_memory_locks;
extern const struct sp_facet sp_facet_limits;
extern const struct sp_facet sp_facet_scheduling;
extern const struct sp_facet sp_facet_semaphore_undo;
extern const struct sp_facet sp_facet_shared_seccomp;
extern const struct sp_facet sp_facet_seccomp;
extern const struct sp_facet sp_facet_credentials;
extern const struct sp_facet sp_facet_hardening;
extern const struct sp_facet sp_facet_landlock;

#endif
