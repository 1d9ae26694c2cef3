/* A profiler plugin of NCCL: tells what each process's collectives do, in a file in memory.
 *
 *   cc -std=c11 -O2 -fPIC -shared -pthread plugin.c -o libnccl-profiler-skeletonhunter.so
 *
 * NCCL calls it from the threads that launch operations and that move data. None of these calls
 * takes a lock, allocates, or asks the kernel for anything but the time. What finds no place is
 * counted, and left out. `init` alone opens files; where it cannot, NCCL goes on without a plugin.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nccl_abi.h"
#include "ring_layout.h"

#define FOLDER_NAME "SKELETONHUNTER_RING_DIR"
#define FOLDER "/dev/shm/skeletonhunter"
#define SECOND_NS 1000000000ULL
/* Proxy operations and steps in flight: 32 channels, both ways, 8 steps each, in 32 operations. */
#define OBJECTS 16384
#define MASK (EVENT_COLL | EVENT_P2P | EVENT_PROXY_OP | EVENT_PROXY_STEP | EVENT_KERNEL_CH)

#define LOAD(where) atomic_load_explicit(&(where), memory_order_relaxed)
#define STORE(where, what) atomic_store_explicit(&(where), (what), memory_order_relaxed)
#define ADD(where, what) atomic_fetch_add_explicit(&(where), (what), memory_order_relaxed)

/* Handles: an operation's number, or an object's address, with what it is in the lowest bits. */
enum { TAG_OPERATION = 1, TAG_KERNEL = 2, TAG_PROXY_OP = 3, TAG_PROXY_STEP = 4, TAGS = 7 };

struct object {
  _Alignas(64) struct channel *channel;
  uint64_t number_plus_1; /* of the operation, 0: not known */
  uint64_t bytes;         /* of a step, once it is known */
  uint8_t is_send;
  uint8_t is_ready, is_moved;
  half next;              /* in the list of free objects */
};

static struct ring *ring;
static pid_t ring_pid;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct object objects[OBJECTS];
static half fresh_objects;
/* Place + 1 of the first free object; above it a count, so that one that comes back is noticed. */
static word free_objects;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* To some milliseconds, at a fifth of the cost. */
static uint64_t about_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void copy_text(char *target, size_t bytes, const char *text) {
  memset(target, 0, bytes);
  if (text != NULL) memcpy(target, text, strnlen(text, bytes - 1));
}

/* ---- objects ---- */

static struct object *take_object(void) {
  uint64_t head = LOAD(free_objects);
  while ((uint32_t)head != 0) {
    struct object *object = &objects[(uint32_t)head - 1];
    uint64_t rest = (head & 0xffffffff00000000ULL) + 0x100000000ULL + LOAD(object->next);
    if (atomic_compare_exchange_weak_explicit(&free_objects, &head, rest, memory_order_acquire,
                                              memory_order_acquire))
      return object;
  }
  if (LOAD(fresh_objects) >= OBJECTS) return NULL;
  uint32_t place = ADD(fresh_objects, 1);
  return place < OBJECTS ? &objects[place] : NULL;
}

static void give_object(struct object *object) {
  uint64_t head = LOAD(free_objects), first;
  do {
    STORE(object->next, (uint32_t)head);
    first = (head & 0xffffffff00000000ULL) + 0x100000000ULL + (uint64_t)(object - objects) + 1;
  } while (!atomic_compare_exchange_weak_explicit(&free_objects, &head, first,
                                                  memory_order_release, memory_order_relaxed));
}

static struct object *object_of(void *handle) {
  uintptr_t at = (uintptr_t)handle & ~(uintptr_t)TAGS, first = (uintptr_t)objects;
  if (at < first || at >= first + sizeof objects || (at - first) % sizeof(struct object))
    return NULL;
  return (struct object *)at;
}

static void *tagged(const void *object, unsigned tag) { return (void *)((uintptr_t)object | tag); }
static void *numbered(uint64_t number, unsigned tag) {
  return (void *)(uintptr_t)((number + 1) << 3 | tag);
}
static unsigned tag_of(const void *handle) { return (unsigned)((uintptr_t)handle & TAGS); }

/* ---- operations ---- */

/* NULL: the ring no longer has it. */
static struct operation *operation_of(uint64_t number_plus_1) {
  if (number_plus_1 == 0) return NULL;
  uint64_t number = number_plus_1 - 1;
  if (LOAD(ring->sequences[number % OPERATIONS]) == 2 * number + 2)
    return &ring->operations[number % OPERATIONS];
  ADD(ring->header.lost_events, 1);
  return NULL;
}

static void note_start(struct operation *operation) {
  uint64_t none = 0;
  if (LOAD(operation->started_ns) == 0)
    atomic_compare_exchange_strong(&operation->started_ns, &none, now_ns());
}

static struct communicator *communicator_of(void *context) {
  uintptr_t at = (uintptr_t)context, first = (uintptr_t)ring->communicators;
  if (at < first || at >= first + sizeof ring->communicators ||
      (at - first) % sizeof(struct communicator))
    return NULL;
  return context;
}

static void *begin_operation(struct communicator *of, const struct event *event, bool is_p2p) {
  uint64_t number = ADD(ring->header.next_operation, 1);
  size_t place = number % OPERATIONS;
  struct operation *o = &ring->operations[place];
  STORE(ring->sequences[place], 2 * number + 1);
  atomic_thread_fence(memory_order_release);
  o->hash = of->hash;
  o->communicator = (uint32_t)(of - ring->communicators);
  o->launched_ns = now_ns();
  STORE(o->enqueued_ns, 0);
  STORE(o->started_ns, 0);
  STORE(o->ended_ns, 0);
  STORE(o->kernels_started, 0);
  STORE(o->kernels_ended, 0);
  STORE(o->proxies_started, 0);
  STORE(o->proxies_ended, 0);
  o->is_p2p = is_p2p;
  if (is_p2p) {
    o->sequence = ADD(of->next_p2p, 1);
    o->nccl_sequence = 0;
    o->count = event->p2p.count;
    o->peer = event->p2p.peer;
    o->channels = event->p2p.channels;
    copy_text(o->func, sizeof o->func, event->p2p.func);
    copy_text(o->datatype, sizeof o->datatype, event->p2p.datatype);
    copy_text(o->algorithm, sizeof o->algorithm, NULL);
    copy_text(o->protocol, sizeof o->protocol, NULL);
  } else {
    o->sequence = ADD(of->next_collective, 1);
    o->nccl_sequence = event->coll.sequence;
    o->count = event->coll.count;
    o->peer = event->coll.root;
    o->channels = event->coll.channels;
    copy_text(o->func, sizeof o->func, event->coll.func);
    copy_text(o->datatype, sizeof o->datatype, event->coll.datatype);
    copy_text(o->algorithm, sizeof o->algorithm, event->coll.algorithm);
    copy_text(o->protocol, sizeof o->protocol, event->coll.protocol);
  }
  atomic_store_explicit(&ring->sequences[place], 2 * number + 2, memory_order_release);
  return numbered(number, TAG_OPERATION);
}

/* ---- channels ---- */

static struct channel *channel_of(const struct communicator *of, uint8_t number, int peer) {
  uint64_t place_of = (uint64_t)(of - ring->communicators);
  uint64_t key = 1ULL << 63 | place_of << 48 | (uint64_t)number << 32 | (uint32_t)peer;
  /* Multiplication spreads what differs in a few low bits (Knuth, TAOCP 6.4). */
  size_t at = (size_t)((key * 0x9e3779b97f4a7c15ULL) >> 32) % CHANNELS;
  for (size_t tries = 0; tries < CHANNELS; tries++, at = (at + 1) % CHANNELS) {
    uint64_t held = LOAD(ring->keys[at]);
    if (held == key) return &ring->channels[at];
    if (held != 0) continue;
    /* Once it is full of others, nobody searches it all again. */
    if (LOAD(ring->header.used_channels) >= CHANNELS - CHANNELS / 8) break;
    if (atomic_compare_exchange_strong(&ring->keys[at], &held, key)) {
      ADD(ring->header.used_channels, 1);
      return &ring->channels[at];
    }
    if (held == key) return &ring->channels[at];
  }
  ADD(ring->header.lost_channels, 1);
  return NULL;
}

static void *begin_proxy(void *context, const struct event *event) {
  const struct proxy_op_event *proxy = &event->proxy_op;
  if (proxy->pid != ring_pid) {
    /* Its context and its parent are addresses of another process. */
    ADD(ring->header.foreign_events, 1);
    return NULL;
  }
  struct communicator *of = communicator_of(context);
  struct channel *channel = of ? channel_of(of, proxy->channel, proxy->peer) : NULL;
  if (channel == NULL) return NULL;
  struct object *object = take_object();
  if (object == NULL) {
    ADD(ring->header.lost_events, 1);
    return NULL;
  }
  object->channel = channel;
  object->is_send = proxy->is_send != 0;
  object->number_plus_1 =
      tag_of(event->parent) == TAG_OPERATION ? (uint64_t)((uintptr_t)event->parent >> 3) : 0;
  if (object->is_send && proxy->chunk_bytes > 0 &&
      LOAD(channel->chunk_bytes) < (uint64_t)proxy->chunk_bytes)
    STORE(channel->chunk_bytes, (uint64_t)proxy->chunk_bytes);
  struct operation *operation = operation_of(object->number_plus_1);
  if (operation != NULL) ADD(operation->proxies_started, 1);
  return tagged(object, TAG_PROXY_OP);
}

static void *begin_step(const struct event *event) {
  struct object *proxy = tag_of(event->parent) == TAG_PROXY_OP ? object_of(event->parent) : NULL;
  if (proxy == NULL) return NULL;
  struct object *step = take_object();
  if (step == NULL) {
    ADD(ring->header.lost_events, 1);
    return NULL;
  }
  step->channel = proxy->channel;
  step->is_send = proxy->is_send;
  step->number_plus_1 = 0;
  step->bytes = 0;
  step->is_ready = step->is_moved = 0;
  if (step->is_send) ADD(step->channel->sends_posted, 1);
  return tagged(step, TAG_PROXY_STEP);
}

static void note_ready(struct object *step) {
  if (!step->is_ready) ADD(step->channel->sends_ready, 1);
  step->is_ready = 1;
}

static void record_step(struct object *step, int state, const union state_args *args) {
  struct channel *channel = step->channel;
  uint64_t bytes = args != NULL ? args->proxy_step.bytes : 0;
  switch (state) {
  case STEP_SEND_WAITS_FOR_PEER: /* again and again, until the peer has room */
    note_ready(step);
    break;
  case STEP_SEND_WAITS_FOR_NETWORK:
    note_ready(step);
    if (step->is_moved) break;
    step->is_moved = 1;
    step->bytes = bytes;
    ADD(channel->transmitted_bytes, bytes);
    if (ADD(channel->sends_transmitted, 1) == LOAD(channel->sends_done))
      STORE(channel->waits_since_ns, about_now_ns());
    break;
  case STEP_RECV_WAITS_FOR_NETWORK:
    ADD(channel->receives_posted, 1);
    break;
  case STEP_RECV_WAITS_FOR_FLUSH:
    if (step->is_moved) break;
    step->is_moved = 1;
    step->bytes = bytes;
    ADD(channel->arrived_bytes, bytes);
    ADD(channel->receives_arrived, 1);
    break;
  default:
    break;
  }
}

static void end_step(struct object *step) {
  struct channel *channel = step->channel;
  if (step->is_send && step->is_moved) {
    ADD(channel->done_bytes, step->bytes);
    bool last = ADD(channel->sends_done, 1) + 1 == LOAD(channel->sends_transmitted);
    STORE(channel->waits_since_ns, last ? 0 : about_now_ns());
  } else if (!step->is_send && step->is_moved) {
    ADD(channel->consumed_bytes, step->bytes);
    ADD(channel->receives_done, 1);
  }
  give_object(step);
}

/* ---- what NCCL calls ---- */

static int start_event(void *context, void **handle, const struct event *event, uint64_t type) {
  *handle = NULL;
  if (ring == NULL) return RESULT_OK;
  struct communicator *of;
  struct operation *operation;
  switch (type) {
  case EVENT_COLL:
  case EVENT_P2P:
    of = communicator_of(context);
    if (of != NULL) *handle = begin_operation(of, event, type == EVENT_P2P);
    break;
  case EVENT_PROXY_OP:
    *handle = begin_proxy(context, event);
    break;
  case EVENT_PROXY_STEP:
    *handle = begin_step(event);
    break;
  case EVENT_KERNEL_CH:
    if (tag_of(event->parent) != TAG_OPERATION) break;
    operation = operation_of((uint64_t)((uintptr_t)event->parent >> 3));
    if (operation == NULL) break;
    note_start(operation);
    ADD(operation->kernels_started, 1);
    *handle = (void *)(((uintptr_t)event->parent & ~(uintptr_t)TAGS) | TAG_KERNEL);
    break;
  default:
    break;
  }
  return RESULT_OK;
}

static int start_v4(void *context, void **handle, struct event *event) {
  return start_event(context, handle, event, event->type_v4);
}

static int start_v5(void *context, void **handle, struct event *event) {
  return start_event(context, handle, event, event->type);
}

static int stop_event(void *handle) {
  if (ring == NULL || handle == NULL) return RESULT_OK;
  uint64_t number_plus_1 = (uint64_t)((uintptr_t)handle >> 3);
  struct operation *operation;
  struct object *object;
  switch (tag_of(handle)) {
  case TAG_OPERATION:
    if ((operation = operation_of(number_plus_1)) != NULL)
      STORE(operation->enqueued_ns, now_ns());
    break;
  case TAG_KERNEL:
    if ((operation = operation_of(number_plus_1)) == NULL) break;
    STORE(operation->ended_ns, now_ns());
    /* After the time: who sees the last channel's end sees its time, too. */
    atomic_fetch_add_explicit(&operation->kernels_ended, 1, memory_order_release);
    break;
  case TAG_PROXY_OP:
    if ((object = object_of(handle)) == NULL) break;
    if ((operation = operation_of(object->number_plus_1)) != NULL) {
      STORE(operation->ended_ns, now_ns());
      atomic_fetch_add_explicit(&operation->proxies_ended, 1, memory_order_release);
    }
    give_object(object);
    break;
  case TAG_PROXY_STEP:
    if ((object = object_of(handle)) != NULL) end_step(object);
    break;
  default:
    break;
  }
  return RESULT_OK;
}

static int record_event(void *handle, int state, union state_args *args) {
  if (ring == NULL || handle == NULL) return RESULT_OK;
  struct object *object = object_of(handle);
  if (object == NULL) return RESULT_OK;
  if (tag_of(handle) == TAG_PROXY_STEP) {
    record_step(object, state, args);
  } else if (tag_of(handle) == TAG_PROXY_OP && state == PROXY_OP_IN_PROGRESS) {
    struct operation *operation = operation_of(object->number_plus_1);
    if (operation != NULL) note_start(operation);
  }
  return RESULT_OK;
}

/* ---- init and finalize ---- */

/* When this process was started; 0: not known. */
static uint64_t start_ticks(void) {
  char text[1024];
  int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  /* The name, in parentheses, may hold anything; the start is the 22nd field. */
  const char *at = strrchr(text, ')');
  for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
  return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

/* Remove the rings of processes that have ended. Numbers count within a namespace of them only. */
static void remove_old(const char *folder, unsigned long long namespace) {
  char begin[64];
  size_t length = (size_t)snprintf(begin, sizeof begin, "nccl-%llu-", namespace);
  DIR *listing = opendir(folder);
  if (listing == NULL) return;
  struct dirent *entry;
  while ((entry = readdir(listing)) != NULL) {
    if (strncmp(entry->d_name, begin, length) != 0) continue;
    char *end;
    long pid = strtol(entry->d_name + length, &end, 10);
    if (*end == 0 && pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH)
      unlinkat(dirfd(listing), entry->d_name, 0);
  }
  closedir(listing);
}

/* A file of this very process: NCCL was unloaded and loaded again, and numbers must go on. */
static bool is_ours(const struct ring *held, uint64_t ticks) {
  const struct header *h = &held->header;
  return LOAD(h->magic) == RING_MAGIC && h->version == LAYOUT_VERSION && ticks != 0 &&
         h->pid == (uint64_t)getpid() && h->start_ticks == ticks;
}

static struct ring *map_file(int file) {
  void *at = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? NULL : at;
}

static struct ring *open_ring(uint64_t api_version, logger log) {
  const char *folder = getenv(FOLDER_NAME);
  if (folder == NULL || folder[0] == 0) folder = FOLDER;
  /* All users share the usual one, as /tmp; another one is its maker's. */
  if (mkdir(folder, 0700) == 0 && strcmp(folder, FOLDER) == 0) chmod(folder, 01777);
  struct stat found;
  unsigned long long namespace = stat("/proc/self/ns/pid", &found) ? 0 : found.st_ino;
  remove_old(folder, namespace);
  char path[4096];
  if (snprintf(path, sizeof path, "%s/nccl-%llu-%ld", folder, namespace, (long)getpid()) >=
      (int)sizeof path)
    return NULL;
  uint64_t ticks = start_ticks();
  int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0) {
    struct ring *held = NULL;
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
        found.st_size == (off_t)sizeof(struct ring))
      held = map_file(file);
    close(file);
    if (held != NULL && is_ours(held, ticks)) return held;
    if (held != NULL) munmap(held, sizeof *held);
    unlink(path);
  }
  file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  /* Memory that is not there is noticed now, and not by a signal when it is written to. */
  int error = file < 0 ? errno : posix_fallocate(file, 0, sizeof(struct ring));
  struct ring *made = error == 0 ? map_file(file) : NULL;
  if (file >= 0) close(file);
  if (made == NULL) {
    if (log != NULL)
      log(LOG_WARN, LOG_OF_INIT, __FILE__, __LINE__, "skeletonhunter: no ring at %s: %s", path,
          strerror(error ? error : errno));
    if (file >= 0) unlink(path);
    return NULL;
  }
  struct header *h = &made->header;
  h->version = LAYOUT_VERSION;
  h->header_bytes = sizeof(struct header);
  h->operations = OPERATIONS;
  h->operation_bytes = sizeof(struct operation);
  h->communicators = COMMUNICATORS;
  h->communicator_bytes = sizeof(struct communicator);
  h->channels = CHANNELS;
  h->channel_bytes = sizeof(struct channel);
  h->pid = (uint64_t)getpid();
  h->start_ticks = ticks;
  h->created_ns = now_ns();
  h->api_version = api_version;
  atomic_store_explicit(&h->magic, RING_MAGIC, memory_order_release);
  if (log != NULL)
    log(LOG_INFO, LOG_OF_INIT, __FILE__, __LINE__, "skeletonhunter: ring at %s", path);
  return made;
}

static int init(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
                int rank, logger log, uint64_t api_version) {
  *context = NULL;
  pthread_mutex_lock(&lock);
  if (ring == NULL || ring_pid != getpid()) {
    /* The ring of a process that forked is its own. */
    ring_pid = getpid();
    ring = open_ring(api_version, log);
  }
  struct ring *held = ring;
  uint64_t place = held == NULL ? 0 : LOAD(held->header.used_communicators);
  if (held != NULL && place < COMMUNICATORS) {
    struct communicator *made = &held->communicators[place];
    made->hash = hash;
    made->ranks = (uint32_t)ranks;
    made->rank = (uint32_t)rank;
    made->nodes = (uint32_t)nodes;
    made->created_ns = now_ns();
    copy_text(made->name, sizeof made->name, name);
    atomic_store_explicit(&made->valid, 1, memory_order_release);
    atomic_store_explicit(&held->header.used_communicators, place + 1, memory_order_release);
    *context = made;
  } else if (held != NULL) {
    ADD(held->header.lost_communicators, 1);
  }
  pthread_mutex_unlock(&lock);
  if (held == NULL) return RESULT_SYSTEM_ERROR;
  *mask = MASK;
  return RESULT_OK;
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
                   int ranks, int rank, logger log) {
  return init(context, mask, name, hash, nodes, ranks, rank, log, 4);
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                   int ranks, int rank, logger log) {
  return init(context, mask, name, hash, nodes, ranks, rank, log, 5);
}

static int init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes,
                   int ranks, int rank, logger log) {
  return init(context, mask, name, hash, nodes, ranks, rank, log, 6);
}

static int finalize(void *context) {
  struct communicator *of = ring == NULL ? NULL : communicator_of(context);
  if (of != NULL) STORE(of->finalized_ns, now_ns());
  return RESULT_OK;
}

/* Nothing is unmapped at the end: threads of NCCL may call until the process is gone. */

#define PUBLIC __attribute__((visibility("default")))
PUBLIC struct profiler_v4 ncclProfiler_v4 = {"skeletonhunter", init_v4, start_v4, stop_event,
                                             record_event, finalize};
PUBLIC struct profiler_v5 ncclProfiler_v5 = {"skeletonhunter", init_v5, start_v5, stop_event,
                                             record_event, finalize};
PUBLIC struct profiler_v5 ncclProfiler_v6 = {"skeletonhunter", init_v6, start_v5, stop_event,
                                             record_event, finalize};
