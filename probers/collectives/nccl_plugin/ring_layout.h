/* The file that the plugin writes and the collector reads: layout version 1.
 *
 * All numbers are of the host's byte order; all parts follow each other without gaps:
 *
 *   struct header            4,096 bytes
 *   uint64_t sequences[]     one for each place of an operation
 *   struct operation[]       a ring: operation number n is at place n % operations
 *   struct communicator[]    in the order in which they were made, never used again
 *   uint64_t keys[]          one for each place of a channel, 0: free
 *   struct channel[]
 *
 * sequences[place] is 2 n + 1 while number n is written, 2 n + 2 once it stands. Who reads takes
 * sequences before and after the operations, and uses those whose sequence is the same and even.
 * What changes later (times, counts) are words of their own: each is right by itself.
 *
 * probers/collectives/nccl_ring.py reads it. Whoever changes the layout counts LAYOUT_VERSION up.
 */
#ifndef SKELETONHUNTER_RING_LAYOUT_H
#define SKELETONHUNTER_RING_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

/* "SKHUNTNR" as bytes. */
#define RING_MAGIC 0x524e544e55484b53ULL
#define LAYOUT_VERSION 1
/* At 1,000 operations a second a ring that is read every two seconds still has all. */
#define OPERATIONS 2048
#define COMMUNICATORS 512
/* 32 channels to 64 peers. */
#define CHANNELS 2048
#define NAME_BYTES 64

typedef _Atomic uint64_t word;
typedef _Atomic uint32_t half;

struct header {
  word magic; /* written last: before, there is nothing to read */
  uint32_t version;
  uint32_t header_bytes;
  uint32_t operations, operation_bytes;
  uint32_t communicators, communicator_bytes;
  uint32_t channels, channel_bytes;
  uint64_t pid;          /* as the process sees itself */
  uint64_t start_ticks;  /* when it was started, as /proc says: numbers of processes come again */
  uint64_t created_ns;   /* since the epoch, as all times */
  uint64_t api_version;  /* of the plugin's interface that NCCL chose */
  word next_operation;   /* number of the next one, from 0 */
  word used_communicators;
  word used_channels;
  word lost_communicators; /* beyond the bounds above, and what happened on them is not here */
  word lost_channels;
  word lost_events;      /* of operations that the ring no longer has; no object was free */
  word foreign_events;   /* of other processes' operations (PXN), which are not followed */
  char reserved[4096 - 128];
};

struct operation {
  uint64_t hash;            /* of the communicator */
  uint64_t sequence;        /* of collectives, or of point-to-point operations, on it, from 0 */
  uint64_t nccl_sequence;   /* NCCL's own, which it counts for each function */
  uint64_t count;           /* of numbers */
  uint64_t launched_ns;
  word enqueued_ns;         /* 0: not yet, as all that follows */
  word started_ns;          /* when its first channel began, on the GPU or the network */
  word ended_ns;            /* when its last channel so far ended */
  half kernels_started, kernels_ended;
  half proxies_started, proxies_ended;
  int32_t peer;             /* of a point-to-point operation; else the root */
  uint32_t communicator;
  uint16_t channels;
  uint8_t is_p2p;
  char reserved[5];
  char func[16];
  char datatype[16];
  char algorithm[16];
  char protocol[16];
  char reserved_too[32];
};

struct communicator {
  word valid;               /* 1 once it stands */
  uint64_t hash;
  uint32_t ranks, rank, nodes, reserved;
  word next_collective, next_p2p;
  uint64_t created_ns;
  word finalized_ns;        /* 0: it is in use */
  char name[NAME_BYTES];
};

/* Traffic with one peer over one channel since the start; key: 1 | communicator | channel | peer
 * in 1, 15, 16 and 32 bits. A step is a transfer of a chunk at most. */
struct channel {
  word sends_posted;        /* given to the GPU to fill */
  word sends_ready;         /* filled */
  word sends_transmitted;   /* given to the network */
  word sends_done;          /* the network is done with it */
  word transmitted_bytes, done_bytes;
  word receives_posted;     /* given to the network to fill */
  word receives_arrived;
  word receives_done;       /* the GPU has taken it */
  word arrived_bytes, consumed_bytes;
  word waits_since_ns;      /* since when the network is not done with any; 0: it is with all */
  word chunk_bytes;         /* the largest of a send so far */
  char reserved[24];
};

_Static_assert(sizeof(struct header) == 4096, "a page");
_Static_assert(sizeof(struct operation) == 192, "three cache lines");
_Static_assert(sizeof(struct communicator) == 128, "two cache lines");
_Static_assert(sizeof(struct channel) == 128, "two cache lines");

struct ring {
  struct header header;
  word sequences[OPERATIONS];
  struct operation operations[OPERATIONS];
  struct communicator communicators[COMMUNICATORS];
  word keys[CHANNELS];
  struct channel channels[CHANNELS];
};

#endif
