/* Plays NCCL before its profiler plugin: calls what the lines of its input say.
 *
 *   cc -std=c11 -O2 -pthread nccl_stand_in.c -ldl -o nccl_stand_in
 *   nccl_stand_in PLUGIN VERSION
 *
 *   init C HASH RANKS RANK NAME         a communicator, by a number of ours
 *   coll H C FUNC COUNT TYPE CHANNELS SEQUENCE
 *   p2p H C FUNC COUNT TYPE PEER CHANNELS
 *   proxy H C PARENT CHANNEL PEER SENDS CHUNK FOREIGN
 *   step H C PARENT NUMBER
 *   kernel H C PARENT CHANNEL
 *   other H C TYPE                      an event of a kind that the plugin did not ask for
 *   record H STATE BYTES
 *   stop H
 *   finalize C
 *   reload                              close the plugin, and open it again
 *   flood THREADS OPERATIONS STEPS      all at once, whole operations; prints nanoseconds a call
 *
 * Each line is answered by a line: ok, or what the call returned. The structures are written down
 * here once more, after NCCL's published headers, and not taken from the plugin: who lays them out
 * wrongly there is found out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLL = 2, P2P = 4, PROXY_OP = 8, PROXY_STEP = 16, KERNEL_CH = 64 };
#define HANDLES 4096
#define CONTEXTS 1024
#define CHANNELS 4

typedef struct {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      uint64_t seqNumber; const char *func; void const *sendBuff; void *recvBuff; size_t count;
      int root; const char *datatype; uint8_t nChannels; uint8_t nWarps; const char *algo;
      const char *proto;
    } coll;
    struct { const char *func; void *buff; const char *datatype; size_t count; int peer;
             uint8_t nChannels; } p2p;
    struct { pid_t pid; uint8_t channelId; int peer; int nSteps; int chunkSize; int isSend;
    } proxyOp;
    struct { int step; } proxyStep;
    struct { uint8_t channelId; uint64_t pTimer; } kernelCh;
    struct { int64_t id; void *data; } netPlugin;
  };
} descr_v4;

typedef struct {
  uint64_t type;
  void *parentObj;
  int rank;
  union {
    struct { bool graphCaptured; int groupDepth; } groupApi;
    struct { const char *func; size_t count; const char *datatype; int root; void *stream;
             bool graphCaptured; } collApi;
    struct {
      uint64_t seqNumber; const char *func; void const *sendBuff; void *recvBuff; size_t count;
      int root; const char *datatype; uint8_t nChannels; uint8_t nWarps; const char *algo;
      const char *proto; void *parentGroup;
    } coll;
    struct { const char *func; void *buff; const char *datatype; size_t count; int peer;
             uint8_t nChannels; void *parentGroup; } p2p;
    struct { pid_t pid; uint8_t channelId; int peer; int nSteps; int chunkSize; int isSend;
    } proxyOp;
    struct { int step; } proxyStep;
    struct { uint8_t channelId; uint64_t pTimer; } kernelCh;
    struct { int64_t id; void *data; } netPlugin;
    struct {
      uint64_t seqNumber; const char *func; void const *sendBuff; void *recvBuff; size_t count;
      int root; const char *datatype; const char *syncStrategy; bool intraBatchSync;
      uint32_t batchSize; uint32_t numBatches; uint32_t ceSeqNum; void *stream;
    } ceColl;
  };
} descr_v5;

typedef union {
  struct { size_t transSize; } proxyStep;
  struct { int appendedProxyOps; } proxyCtrl;
  struct { void *data; } netPlugin;
  struct { uint64_t pTimer; } kernelCh;
} state_args;

typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
typedef int (*init_v4)(void **, int *, const char *, uint64_t, int, int, int, logger);
typedef int (*init_v5)(void **, uint64_t, int *, const char *, int, int, int, logger);
typedef struct {
  const char *name;
  void *init;
  int (*startEvent)(void *, void **, void *);
  int (*stopEvent)(void *);
  int (*recordEventState)(void *, int, state_args *);
  int (*finalize)(void *);
} profiler;

static profiler *plugin;
static void *library;
static int version;
static const char *path;
static void *handles[HANDLES], *contexts[CONTEXTS];

static void open_plugin(void) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  plugin = library ? dlsym(library, symbol) : NULL;
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
}

static int init(int at, uint64_t hash, int ranks, int rank, const char *name) {
  int mask = 0;
  int result = version == 4
      ? ((init_v4)plugin->init)(&contexts[at], &mask, name, hash, 2, ranks, rank, NULL)
      : ((init_v5)plugin->init)(&contexts[at], hash, &mask, name, 2, ranks, rank, NULL);
  return result != 0 ? -result : mask;
}

/* In memory that holds something else, as a stack does: nobody may read beyond what is set. */
#define START(handle, context, kind, parent, ...)                                      \
  do {                                                                                 \
    if (version == 4) {                                                                \
      descr_v4 d;                                                                      \
      memset(&d, 0xa5, sizeof d);                                                      \
      d.type = (uint8_t)(kind); d.parentObj = (parent); d.rank = 0;                    \
      __VA_ARGS__;                                                                     \
      plugin->startEvent((context), (handle), &d);                                     \
    } else {                                                                           \
      descr_v5 d;                                                                      \
      memset(&d, 0xa5, sizeof d);                                                      \
      d.type = (uint64_t)(kind); d.parentObj = (parent); d.rank = 0;                   \
      __VA_ARGS__;                                                                     \
      plugin->startEvent((context), (handle), &d);                                     \
    }                                                                                  \
  } while (0)

static void coll(void **handle, void *context, const char *func, size_t count, const char *type,
                 int channels, uint64_t sequence) {
  START(handle, context, COLL, NULL, d.coll.func = func; d.coll.count = count;
        d.coll.datatype = type; d.coll.nChannels = (uint8_t)channels; d.coll.root = 0;
        d.coll.seqNumber = sequence; d.coll.algo = "RING"; d.coll.proto = "SIMPLE");
}

static void proxy(void **handle, void *context, void *parent, int channel, int peer, int sends,
                  int chunk, int foreign) {
  START(handle, context, PROXY_OP, parent, d.proxyOp.pid = getpid() + foreign;
        d.proxyOp.channelId = (uint8_t)channel; d.proxyOp.peer = peer; d.proxyOp.nSteps = 1;
        d.proxyOp.chunkSize = chunk; d.proxyOp.isSend = sends);
}

static void step(void **handle, void *context, void *parent, int number) {
  START(handle, context, PROXY_STEP, parent, d.proxyStep.step = number);
}

static void kernel(void **handle, void *context, void *parent, int channel) {
  START(handle, context, KERNEL_CH, parent, d.kernelCh.channelId = (uint8_t)channel;
        d.kernelCh.pTimer = 1);
}

static void record(void *handle, int state, size_t bytes) {
  state_args args = {{0}};
  args.proxyStep.transSize = bytes;
  if (handle != NULL) plugin->recordEventState(handle, state, &args);
}

static void stop(void *handle) {
  if (handle != NULL) plugin->stopEvent(handle);
}

struct flood { int thread, operations, steps; uint64_t calls; };

static void *run_flood(void *given) {
  struct flood *flood = given;
  void *context = contexts[0];
  for (int i = 0; i < flood->operations; i++) {
    void *operation, *kernels[CHANNELS], *op, *one;
    coll(&operation, context, "AllReduce", 1 << 20, "ncclBfloat16", CHANNELS, (uint64_t)i);
    for (int c = 0; c < CHANNELS; c++) kernel(&kernels[c], context, operation, c);
    stop(operation);
    flood->calls += 2 + CHANNELS;
    for (int c = 0; c < CHANNELS; c++) {
      int sends = c % 2;
      proxy(&op, context, operation, c, 1, sends, 1 << 19, 0);
      record(op, 19, 0);
      for (int s = 0; s < flood->steps; s++) {
        step(&one, context, op, s);
        record(one, sends ? 8 : 10, 0);
        if (sends) record(one, 20, 0);
        record(one, sends ? 9 : 11, 1 << 19);
        if (!sends) record(one, 12, 1 << 19);
        stop(one);
        flood->calls += 5;
      }
      stop(op);
      stop(kernels[c]);
      flood->calls += 4;
    }
  }
  return NULL;
}

static void flood(int threads, int operations, int steps) {
  pthread_t running[64];
  struct flood given[64];
  struct timespec begin, end;
  uint64_t calls = 0;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  for (int i = 0; i < threads && i < 64; i++) {
    given[i] = (struct flood){i, operations, steps, 0};
    pthread_create(&running[i], NULL, run_flood, &given[i]);
  }
  for (int i = 0; i < threads && i < 64; i++) {
    pthread_join(running[i], NULL);
    calls += given[i].calls;
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
  printf("%.1f ns %lu calls\n", calls ? ns / (double)calls : 0, (unsigned long)calls);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  path = argv[1];
  version = atoi(argv[2]);
  open_plugin();
  char line[512], *words[10];
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin) != NULL) {
    char *saved = NULL;
    int n = 0;
    for (char *w = strtok_r(line, " \n", &saved); w && n < 10; w = strtok_r(NULL, " \n", &saved))
      words[n++] = w;
    for (int i = n; i < 10; i++) words[i] = (char *)"0";
    const char *what = words[0];
    void **handle = &handles[atoi(words[1]) % HANDLES];
    void *context = contexts[atoi(words[2]) % CONTEXTS];
    void *parent = handles[atoi(words[3]) % HANDLES];
    if (!strcmp(what, "init")) {
      int mask = init(atoi(words[1]) % CONTEXTS, strtoull(words[2], NULL, 16), atoi(words[3]),
                      atoi(words[4]), n > 5 ? words[5] : NULL);
      printf("%d\n", mask);
      continue;
    } else if (!strcmp(what, "coll")) {
      coll(handle, context, words[3], strtoull(words[4], NULL, 10), words[5], atoi(words[6]),
           strtoull(words[7], NULL, 10));
    } else if (!strcmp(what, "p2p")) {
      START(handle, context, P2P, NULL, d.p2p.func = words[3];
            d.p2p.count = strtoull(words[4], NULL, 10); d.p2p.datatype = words[5];
            d.p2p.peer = atoi(words[6]); d.p2p.nChannels = (uint8_t)atoi(words[7]));
    } else if (!strcmp(what, "proxy")) {
      proxy(handle, context, parent, atoi(words[4]), atoi(words[5]), atoi(words[6]),
            atoi(words[7]), atoi(words[8]));
    } else if (!strcmp(what, "step")) {
      step(handle, context, parent, atoi(words[4]));
    } else if (!strcmp(what, "kernel")) {
      kernel(handle, context, parent, atoi(words[4]));
    } else if (!strcmp(what, "other")) {
      START(handle, context, atoi(words[3]), NULL, (void)0);
      printf("%s\n", *handle == NULL ? "none" : "a handle");
      continue;
    } else if (!strcmp(what, "record")) {
      record(*handle, atoi(words[2]), strtoull(words[3], NULL, 10));
    } else if (!strcmp(what, "stop")) {
      stop(*handle);
    } else if (!strcmp(what, "finalize")) {
      plugin->finalize(contexts[atoi(words[1]) % CONTEXTS]);
    } else if (!strcmp(what, "reload")) {
      dlclose(library);
      open_plugin();
    } else if (!strcmp(what, "flood")) {
      flood(atoi(words[1]), atoi(words[2]), atoi(words[3]));
      continue;
    }
    puts("ok");
  }
  return 0;
}
