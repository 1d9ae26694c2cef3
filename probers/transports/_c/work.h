/* What a transport does per packet: `PythonDatagrams` in probers/transports/datagrams.py. */
#ifndef SKELETONHUNTER_WORK_H
#define SKELETONHUNTER_WORK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "outstanding.h"
#include "packet.h"

#define SECOND_NS 1000000000LL

/* probers/clock.py, probers/transports/{rtt,responder,exchange}.py. */
#define PAIR_NS 20000
#define PAIR_ATTEMPTS 4
#define STEP_TOLERANCE_NS 1000000
#define ABSURD_NS (120 * SECOND_NS)
#define MAX_REPLIES_HZ 20000.0
#define REPLY_BURST 4096.0
#define LEAVING_STEP_NS 500
#define UP_SHARE 16
#define DOWN_SHARE 5
#define MAX_WAIT_NS (10 * SECOND_NS)
#define UNDRAINED_NS SECOND_NS
/* Datagrams taken from one socket in one turn, and sources noted until Python takes them. */
#define MAX_AT_ONCE 256
/* Datagrams of one call of the system: a slot's replies are a handful. */
#define BATCH 8
#define CONTROL_BYTES 64
/* 256 bytes: the kernel gives so many at once; of more, a signal may cut off the rest. */
#define NONCES 32
#define MAX_EVENTS 64

/* ---- State ---- */

typedef struct {
    int64_t now_ns;
    uint32_t source;
    uint8_t genuine, token;
} Observation;

typedef enum { PROBES, ANSWERS, FOREIGN } Role;

typedef struct {
    int fd;
    Role role;
    uint8_t failed; /* its errors are to be read by Python */
} Watched;

typedef struct {
    long long duplicate, late, foreign, malformed, forged, answered, unanswered;
} Counts;

typedef struct {
    PyObject_HEAD
    int epoll, family;
    PyObject *clock, *nonces, *counts_object, *completions;
    Counts counts;
    /* Packets. */
    Keys keys;
    Py_ssize_t probe_bytes;
    uint32_t factor;
    uint64_t secret;
    uint64_t random[NONCES];
    int random_left;
    /* Sockets. */
    Watched *watched;
    int watched_count, watched_room;
    int drained, overfull, urgent, failed_count;
    Outstanding probes;
    /* The responder. */
    double budget;
    int64_t budget_ns, offset_ns, packed_ns, leaving_ns;
    int budget_begun, offset_known;
    /* Who sent what to the socket that answers. */
    Observation observed[MAX_AT_ONCE];
    int observed_count;
} Datagrams;

/* Objects of the Python side, fetched once. */
static struct {
    PyObject *completion, *timestamps, *ok, *bad_reply, *timeout, *none, *corrupt,
        *implausible, *arrived_late, *not_sent, *kernel, *software, *now;
} py;

/* ---- Clock ---- */

static int64_t read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int now_of(Datagrams *self, Instant *now) {
    if (self->clock == NULL) {
        int64_t before = 0, real = 0, after = 0;
        for (int attempt = 0; attempt < PAIR_ATTEMPTS; attempt++) {
            before = read_clock(CLOCK_MONOTONIC);
            real = read_clock(CLOCK_REALTIME);
            after = read_clock(CLOCK_MONOTONIC);
            if (after - before <= PAIR_NS)
                break;
        }
        now->monotonic_ns = after;
        now->realtime_ns = real + (after - before) / 2;
        return 0;
    }
    PyObject *pair = PyObject_CallMethodNoArgs(self->clock, py.now);
    if (pair == NULL)
        return -1;
    long long monotonic = 0, real = 0;
    int good = PyTuple_Check(pair) && PyArg_ParseTuple(pair, "LL", &monotonic, &real);
    if (!good && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a clock returns a pair of nanoseconds");
    Py_DECREF(pair);
    now->monotonic_ns = monotonic;
    now->realtime_ns = real;
    return good ? 0 : -1;
}

/* ---- Completions ---- */

/* Return a tuple of that class; the references to `items` are taken, and may be NULL after an
 * error. */
static PyObject *build(PyObject *class, PyObject **items, int count) {
    PyObject *plain = PyTuple_New(count), *built = NULL;
    int whole = plain != NULL;
    for (int i = 0; i < count; i++) {
        if (items[i] == NULL)
            whole = 0;
        if (plain != NULL)
            PyTuple_SET_ITEM(plain, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    if (whole) {
        PyObject *arguments = PyTuple_Pack(1, plain);
        if (arguments != NULL)
            built = PyTuple_Type.tp_new((PyTypeObject *)class, arguments, NULL);
        Py_XDECREF(arguments);
    }
    Py_XDECREF(plain);
    return built;
}

/* `times` and `reporter` are taken; NULL: there is none. */
static int complete(Datagrams *self, int64_t token, PyObject *status, PyObject *reason,
                    PyObject *clock, PyObject *times, PyObject *reporter) {
    PyObject *items[] = {PyLong_FromLongLong(token),
                         Py_NewRef(status),
                         Py_NewRef(reason),
                         Py_NewRef(clock),
                         times ? times : Py_NewRef(Py_None),
                         reporter ? reporter : Py_NewRef(Py_None)};
    PyObject *completion = build(py.completion, items, 6);
    if (completion == NULL)
        return -1;
    int failed = PyList_Append(self->completions, completion);
    Py_DECREF(completion);
    if (status != py.ok)
        self->urgent = 1; /* a lost probe is sent again at once */
    return failed;
}

/* The hold as an object: `late - early` of two unsigned numbers. */
static PyObject *hold_object(uint64_t early, uint64_t late) {
    if (late >= early)
        return PyLong_FromUnsignedLongLong(late - early);
    PyObject *size = PyLong_FromUnsignedLongLong(early - late);
    if (size == NULL)
        return NULL;
    PyObject *negative = PyNumber_Negative(size);
    Py_DECREF(size);
    return negative;
}

static PyObject *times_object(const Entry *entry, int64_t handled_ns, int64_t received_ns,
                              PyObject *hold) {
    PyObject *items[] = {PyLong_FromLongLong(entry->posted_ns), PyLong_FromLongLong(entry->posted_ns),
                         PyLong_FromLongLong(received_ns), PyLong_FromLongLong(handled_ns), hold};
    return build(py.timestamps, items, 5);
}

/* `place_arrival` in probers/transports/rtt.py. */
static int64_t place_arrival(int stamped, int64_t kernel_ns, Instant now, const Entry *entry,
                             PyObject **clock) {
    *clock = py.software;
    if (!stamped)
        return now.monotonic_ns;
    int64_t waited_ns = now.realtime_ns - kernel_ns;
    int64_t moved_ns = now.realtime_ns - now.monotonic_ns - entry->posted_offset_ns;
    if (moved_ns > STEP_TOLERANCE_NS || moved_ns < -STEP_TOLERANCE_NS || waited_ns < 0 ||
        waited_ns > now.monotonic_ns - entry->posted_ns)
        return now.monotonic_ns;
    *clock = py.kernel;
    return now.monotonic_ns - waited_ns;
}

/* Whether `measure` in probers/transports/rtt.py has a result. */
static int plausible(const Entry *entry, int64_t handled_ns, int64_t received_ns, uint64_t t2,
                     uint64_t t3) {
    if (t3 < t2)
        return 0;
    uint64_t hold_ns = t3 - t2;
    int64_t away_ns = received_ns - entry->posted_ns, total_ns = handled_ns - entry->posted_ns;
    if (total_ns < 0 || total_ns > ABSURD_NS || away_ns < 0 || away_ns > ABSURD_NS)
        return 0;
    return hold_ns <= (uint64_t)away_ns; /* and it arrived before it was handled */
}

/* The entry that an answer is awaited for; else it is counted. */
static Entry *awaited(Datagrams *self, uint64_t nonce) {
    Entry *entry = find(&self->probes, nonce);
    if (entry == NULL)
        self->counts.foreign++;
    else if (entry->stage == ANSWERED)
        self->counts.duplicate++;
    else if (entry->stage == LATE)
        self->counts.late++;
    else
        return entry;
    return NULL;
}

static PyObject *address_object(const struct sockaddr_storage *from) {
    char text[NI_MAXHOST];
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        if (inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text) == NULL)
            return PyErr_SetFromErrno(PyExc_OSError);
    } else if (getnameinfo((const struct sockaddr *)from, sizeof(struct sockaddr_in6), text,
                           sizeof text, NULL, 0, NI_NUMERICHOST) != 0) {
        PyErr_SetString(PyExc_OSError, "an address without a name");
        return NULL;
    }
    return PyUnicode_FromString(text);
}

static int handle_reply(Datagrams *self, const uint8_t *data, int stamped, int64_t kernel_ns,
                        const struct sockaddr_storage *from) {
    Instant now;
    if (now_of(self, &now) < 0)
        return -1;
    Entry *entry = awaited(self, get64(data + NONCE_AT));
    if (entry == NULL)
        return 0;
    PyObject *clock;
    int64_t received_ns = place_arrival(stamped, kernel_ns, now, entry, &clock);
    if (received_ns > entry->posted_ns + entry->timeout_ns) {
        self->counts.late++;
        int64_t token = entry->token;
        finish(&self->probes, entry, 0);
        return complete(self, token, py.timeout, py.arrived_late, py.software, NULL, NULL);
    }
    uint64_t t2 = get64(data + T2_AT), t3 = get64(data + T3_AT);
    int good = plausible(entry, now.monotonic_ns, received_ns, t2, t3);
    PyObject *times = times_object(entry, now.monotonic_ns, received_ns, hold_object(t2, t3));
    if (times == NULL)
        return -1;
    PyObject *reporter = NULL;
    if (good && (reporter = address_object(from)) == NULL) {
        Py_DECREF(times);
        return -1;
    }
    int64_t token = entry->token;
    finish(&self->probes, entry, 1);
    return good ? complete(self, token, py.ok, py.none, clock, times, reporter)
                : complete(self, token, py.bad_reply, py.implausible, clock, times, NULL);
}

/* ---- The responder: probers/transports/responder.py ---- */

static int take_token(Datagrams *self, int64_t now_ns) {
    if (!self->budget_begun) {
        self->budget_begun = 1;
        self->budget_ns = now_ns;
    }
    int64_t elapsed_ns = now_ns - self->budget_ns;
    if (elapsed_ns > 0) {
        double filled = self->budget + (double)elapsed_ns * MAX_REPLIES_HZ / 1e9;
        self->budget = filled < REPLY_BURST ? filled : REPLY_BURST;
        self->budget_ns = now_ns;
    }
    if (self->budget < 1)
        return 0;
    self->budget -= 1;
    return 1;
}

/* Turn a probe into its reply in place. Return 1 if there is one, 0 if not, -1 after an error. */
static int answer(Datagrams *self, uint8_t *data, size_t length, int stamped, int64_t kernel_ns) {
    Instant taken, packed, leaving;
    if (now_of(self, &taken) < 0)
        return -1;
    if (!take_token(self, taken.monotonic_ns)) {
        self->counts.unanswered++;
        return 0;
    }
    int64_t offset_ns = taken.realtime_ns - taken.monotonic_ns;
    int64_t moved_ns = offset_ns - self->offset_ns;
    int stepped =
        self->offset_known && (moved_ns > STEP_TOLERANCE_NS || moved_ns < -STEP_TOLERANCE_NS);
    self->offset_ns = offset_ns;
    self->offset_known = 1;
    int64_t waited_ns = stamped ? taken.realtime_ns - kernel_ns : 0;
    int by_kernel = stamped && !stepped && waited_ns >= 0 && waited_ns <= MAX_WAIT_NS;
    if (!by_kernel)
        waited_ns = 0;
    self->counts.answered++;
    if (now_of(self, &packed) < 0)
        return -1;
    self->packed_ns = packed.monotonic_ns;
    int64_t held_ns = waited_ns + packed.monotonic_ns - taken.monotonic_ns + self->leaving_ns;
    int64_t t2_ns = taken.realtime_ns - waited_ns;
    seal(&self->keys, data, length, REPLY, by_kernel ? FLAG_T2_KERNEL : 0, get64(data + NONCE_AT),
         (uint64_t)t2_ns, (uint64_t)(t2_ns + held_ns), 0);
    if (now_of(self, &leaving) < 0)
        return -1;
    int64_t took_ns = leaving.monotonic_ns - self->packed_ns, usual_ns = self->leaving_ns, next_ns;
    if (took_ns > usual_ns) {
        next_ns = usual_ns + usual_ns / UP_SHARE + LEAVING_STEP_NS;
        self->leaving_ns = took_ns < next_ns ? took_ns : next_ns;
    } else {
        next_ns = usual_ns - usual_ns / DOWN_SHARE - LEAVING_STEP_NS;
        self->leaving_ns = took_ns > next_ns ? took_ns : next_ns;
    }
    return 1;
}

/* ---- One datagram ---- */

/* `SourceHash` in probers/transports/packet_filter.py. */
static uint32_t hash_of(const Datagrams *self, const struct sockaddr_storage *from) {
    const uint8_t *words;
    uint16_t port;
    int count;
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        words = (const uint8_t *)&v4->sin_addr;
        port = ntohs(v4->sin_port);
        count = 1;
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
        words = (const uint8_t *)&v6->sin6_addr;
        port = ntohs(v6->sin6_port);
        count = 4;
    }
    uint32_t mixed = port * self->factor;
    for (int i = 0; i < count; i++)
        mixed = (mixed ^ get32(words + 4 * i)) * self->factor;
    return mixed >> 1;
}

static int observe(Datagrams *self, const uint8_t *data, size_t length,
                   const struct sockaddr_storage *from, int genuine) {
    Instant now;
    if (now_of(self, &now) < 0)
        return -1;
    int token = 0;
    if (length >= HEADER_BYTES)
        for (int k = 0; k < self->keys.count; k++)
            token |= self->keys.token[k] == get32(data + REPLY_KEY_AT);
    if (self->observed_count < MAX_AT_ONCE) {
        Observation *seen = &self->observed[self->observed_count++];
        *seen = (Observation){now.monotonic_ns, hash_of(self, from), (uint8_t)genuine,
                              (uint8_t)token};
    }
    return 0;
}

/* Process a datagram. Return 1 if `data` is now the reply to send, 0 if not, -1 after an error. */
static int take_in(Datagrams *self, Role role, uint8_t *data, size_t length, int stamped,
                   int64_t kernel_ns, const struct sockaddr_storage *from) {
    Verdict found = verdict(&self->keys, data, length);
    if (found != INTACT) {
        if (role == ANSWERS && observe(self, data, length, from, 0) < 0)
            return -1;
        if (found == FORGED) {
            self->counts.forged++;
            return 0;
        }
        self->counts.malformed++;
        if (found != MALFORMED_WITH_NONCE)
            return 0;
        Entry *entry = find(&self->probes, get64(data + NONCE_AT));
        if (entry == NULL || entry->stage != AWAITED)
            return 0;
        int64_t token = entry->token;
        finish(&self->probes, entry, 1);
        return complete(self, token, py.bad_reply, py.corrupt, py.software, NULL, NULL);
    }
    int type = data[TYPE_AT];
    if (role == ANSWERS && observe(self, data, length, from, type == PROBE) < 0)
        return -1;
    if (type == REPLY)
        return handle_reply(self, data, stamped, kernel_ns, from);
    if (role != ANSWERS || type != PROBE) {
        self->counts.foreign++;
        return 0;
    }
    return answer(self, data, length, stamped, kernel_ns);
}

/* ---- Sockets ---- */

/* Shared by all transports: the interpreter's lock is held while it is in use. */
static struct {
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    struct sockaddr_storage from[BATCH];
    uint8_t data[BATCH][MAX_PACKET_BYTES + 1];
    union {
        struct cmsghdr align;
        uint8_t bytes[CONTROL_BYTES];
    } control[BATCH];
} inbox;

static void mark_failed(Datagrams *self, Watched *socket) {
    if (!socket->failed) {
        socket->failed = 1;
        self->failed_count++;
    }
}

static int stamp_of(struct msghdr *message, int64_t *kernel_ns) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        struct timespec t;
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS &&
            c->cmsg_len >= CMSG_LEN(sizeof t)) {
            memcpy(&t, CMSG_DATA(c), sizeof t);
            *kernel_ns = (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
            return 1;
        }
    }
    return 0;
}

/* Read a socket; `self->drained` becomes 0 if something may be left. -1 after an error. */
static int read_socket(Datagrams *self, Watched *socket, int erroneous) {
    int budget = MAX_AT_ONCE;
    while (budget > 0) {
        int want = budget < BATCH ? budget : BATCH;
        if (socket->role == ANSWERS && want > MAX_AT_ONCE - self->observed_count)
            want = MAX_AT_ONCE - self->observed_count;
        if (want == 0)
            break;
        for (int i = 0; i < want; i++) {
            inbox.parts[i] = (struct iovec){inbox.data[i], sizeof inbox.data[i]};
            inbox.messages[i].msg_hdr = (struct msghdr){.msg_name = &inbox.from[i],
                                                        .msg_namelen = sizeof inbox.from[i],
                                                        .msg_iov = &inbox.parts[i],
                                                        .msg_iovlen = 1,
                                                        .msg_control = inbox.control[i].bytes,
                                                        .msg_controllen = CONTROL_BYTES};
        }
        int got = recvmmsg(socket->fd, inbox.messages, (unsigned)want, MSG_DONTWAIT, NULL);
        if (got < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return 0;
            if (errno != EINTR)
                mark_failed(self, socket); /* an ICMP error shows here once, too */
            budget--;
            continue;
        }
        for (int i = 0; i < got; i++) {
            int64_t kernel_ns = 0;
            int stamped = stamp_of(&inbox.messages[i].msg_hdr, &kernel_ns);
            size_t length = inbox.messages[i].msg_len;
            int replies = take_in(self, socket->role, inbox.data[i], length, stamped, kernel_ns,
                                  &inbox.from[i]);
            if (replies < 0)
                return -1;
            if (replies && sendto(socket->fd, inbox.data[i], length, MSG_DONTWAIT,
                                  (struct sockaddr *)&inbox.from[i],
                                  inbox.messages[i].msg_hdr.msg_namelen) < 0)
                mark_failed(self, socket); /* the prober sees a timeout */
        }
        budget -= got;
        /* Fewer than asked for: nothing is left, unless an error ended the call. */
        if (got < want && !erroneous && !socket->failed)
            return 0;
    }
    self->drained = 0;
    if (socket->role == ANSWERS)
        self->overfull = 1;
    return 0;
}

/* Process what has arrived at all sockets. */
static int poll_sockets(Datagrams *self) {
    struct epoll_event events[MAX_EVENTS];
    int ready = epoll_wait(self->epoll, events, MAX_EVENTS, 0);
    self->drained = ready < MAX_EVENTS;
    for (int i = 0; i < ready; i++) {
        uint32_t index = events[i].data.u32;
        if (index >= (uint32_t)self->watched_count)
            continue;
        Watched *socket = &self->watched[index];
        int erroneous = (events[i].events & EPOLLERR) != 0;
        if (socket->role == FOREIGN || erroneous)
            mark_failed(self, socket);
        if (socket->role != FOREIGN && read_socket(self, socket, erroneous) < 0)
            return -1;
    }
    return 0;
}

static int has_to_tell(const Datagrams *self) {
    return self->urgent || self->failed_count || !self->drained ||
           self->observed_count == MAX_AT_ONCE;
}

#endif
