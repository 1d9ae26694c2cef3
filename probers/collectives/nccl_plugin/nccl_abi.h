/* The binary interface of NCCL's profiler plugins, versions 4, 5 and 6, as far as it is used here.
 *
 * After plugins/profiler/README.md and the published structures of github.com/NVIDIA/nccl (2.27 to
 * 2.30). Order and types of the members are NCCL's; all else is ours. The event descriptors of the
 * three versions begin alike, but for the type of an event: one byte in version 4, eight later.
 */
#ifndef SKELETONHUNTER_NCCL_ABI_H
#define SKELETONHUNTER_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { RESULT_OK = 0, RESULT_SYSTEM_ERROR = 2 };
enum { LOG_WARN = 2, LOG_INFO = 3, LOG_OF_INIT = 1 };

/* Kinds of events, as bits of the mask that `init` returns. */
enum {
  EVENT_COLL = 1 << 1,
  EVENT_P2P = 1 << 2,
  EVENT_PROXY_OP = 1 << 3,
  EVENT_PROXY_STEP = 1 << 4,
  EVENT_KERNEL_CH = 1 << 6,
};

/* States of a proxy step: what the step waits for from now on. */
enum {
  STEP_SEND_WAITS_FOR_GPU = 8,
  STEP_SEND_WAITS_FOR_NETWORK = 9,
  STEP_RECV_WAITS_FOR_NETWORK = 10,
  STEP_RECV_WAITS_FOR_FLUSH = 11,
  STEP_RECV_WAITS_FOR_GPU = 12,
  PROXY_OP_IN_PROGRESS = 19,
  STEP_SEND_WAITS_FOR_PEER = 20,
};

struct coll_event {
  uint64_t sequence; /* of this function on this communicator */
  const char *func;
  const void *send_buffer;
  void *recv_buffer;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels;
  uint8_t warps;
  const char *algorithm;
  const char *protocol;
};

struct p2p_event {
  const char *func;
  void *buffer;
  const char *datatype;
  size_t count;
  int peer;
  uint8_t channels;
};

struct proxy_op_event {
  pid_t pid; /* of the process that launched the operation, which may be another one (PXN) */
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};

struct kernel_event {
  uint8_t channel;
  uint64_t timer;
};

struct event {
  union {
    uint8_t type_v4;
    uint64_t type;
  };
  void *parent;
  int rank;
  union {
    struct coll_event coll;
    struct p2p_event p2p;
    struct proxy_op_event proxy_op;
    struct { int step; } proxy_step;
    struct kernel_event kernel;
  };
};

union state_args {
  struct { size_t bytes; } proxy_step;
  struct { int appended; } proxy_control;
  struct { void *data; } net_plugin;
  struct { uint64_t timer; } kernel;
};

typedef void (*logger)(int level, unsigned long flags, const char *file, int line,
                       const char *format, ...);

struct profiler_v4 {
  const char *name;
  int (*init)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
              int rank, logger log);
  int (*start)(void *context, void **handle, struct event *event);
  int (*stop)(void *handle);
  int (*record)(void *handle, int state, union state_args *args);
  int (*finalize)(void *context);
};

/* Version 6 differs from version 5 in kinds of events that are not used here. */
struct profiler_v5 {
  const char *name;
  int (*init)(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
              int rank, logger log);
  int (*start)(void *context, void **handle, struct event *event);
  int (*stop)(void *handle);
  int (*record)(void *handle, int state, union state_args *args);
  int (*finalize)(void *context);
};

_Static_assert(offsetof(struct event, parent) == 8, "the parent follows the type");
_Static_assert(offsetof(struct event, coll) == 24, "the union begins alike in all versions");
_Static_assert(offsetof(struct coll_event, datatype) == 48, "as NCCL's compiler lays it out");
_Static_assert(offsetof(struct proxy_op_event, is_send) == 20, "as NCCL's compiler lays it out");

#endif
