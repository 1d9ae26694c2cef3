/* The per-packet work of a UDP transport in C: see probers/transports/datagrams.py, whose
 * `PythonDatagrams` says the same in Python, packet by packet and clock reading by clock reading,
 * and is what this is tested against. Everything rare is left to Python: error queues, filters,
 * floods, what opens a socket.
 *
 * One `Datagrams` is one transport: it owns no socket, but is told of them by `watch`. All state is
 * guarded by the interpreter's lock, which is released only while `wait` sleeps.
 */
#define PY_SSIZE_T_CLEAN
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>

#include <net/if.h>
#include <sys/random.h>
#include <unistd.h>

#include "_c/work.h"

#include "_c/counters.h"

/* ---- The Python type ---- */

static PyTypeObject datagrams_type;

/* Set up an object that is all zero but for its descriptor; -1 after an error. */
static int begin(Datagrams *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"clock", "nonces", "family", "secret", "factor", "keys",
                            "tokens", "probe_bytes", "counts", NULL};
    PyObject *clock, *nonces, *keys, *tokens, *counts;
    unsigned long long secret;
    unsigned int factor;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOiKIO!O!nO", names, &clock, &nonces,
                                     &self->family, &secret, &factor, &PyTuple_Type, &keys,
                                     &PyTuple_Type, &tokens, &self->probe_bytes, &counts))
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(keys);
    if (count > MAX_KEYS || PyTuple_GET_SIZE(tokens) != count || secret > 0xFFFF ||
        self->probe_bytes < MIN_PACKET_BYTES || self->probe_bytes > MAX_PACKET_BYTES ||
        (self->family != AF_INET && self->family != AF_INET6)) {
        PyErr_SetString(PyExc_ValueError, "keys, secret, size or family out of bounds");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        if (!PyBytes_Check(key) || PyBytes_GET_SIZE(key) != KEY_BYTES) {
            PyErr_SetString(PyExc_ValueError, "a key has 32 bytes");
            return -1;
        }
        memcpy(self->keys.key[i], PyBytes_AS_STRING(key), KEY_BYTES);
        unsigned long token = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(tokens, i));
        if (PyErr_Occurred())
            return -1;
        self->keys.token[i] = (uint32_t)token;
    }
    self->keys.count = (int)count;
    self->secret = secret;
    self->factor = factor;
    self->completions = PyList_New(0);
    if (self->completions == NULL)
        return -1;
    self->counts_object = Py_NewRef(counts);
    self->clock = clock == Py_None ? NULL : Py_NewRef(clock);
    self->nonces = nonces == Py_None ? NULL : Py_NewRef(nonces);
    self->budget = REPLY_BURST;
    self->drained = 1;
    outstanding_begin(&self->probes);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return 0;
}

/* All is done here and nothing in `__init__`: what could not be set up is no object. */
static PyObject *datagrams_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Datagrams *self = (Datagrams *)type->tp_alloc(type, 0); /* all zero */
    if (self == NULL)
        return NULL;
    self->epoll = -1;
    if (begin(self, args, kwargs) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *datagrams_close(Datagrams *self, PyObject *unused) {
    (void)unused;
    if (self->epoll >= 0)
        close(self->epoll);
    self->epoll = -1;
    self->watched_count = 0;
    Py_RETURN_NONE;
}

static void datagrams_dealloc(Datagrams *self) {
    Py_XDECREF(datagrams_close(self, NULL));
    Py_XDECREF(self->clock);
    Py_XDECREF(self->nonces);
    Py_XDECREF(self->counts_object);
    Py_XDECREF(self->completions);
    PyMem_Free(self->watched);
    outstanding_end(&self->probes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Set an error and return 0 unless it is open. */
static int is_open(const Datagrams *self) {
    if (self->epoll < 0)
        PyErr_SetString(PyExc_ValueError, "closed");
    return self->epoll >= 0;
}

static PyObject *datagrams_fileno(Datagrams *self, PyObject *unused) {
    (void)unused;
    return is_open(self) ? PyLong_FromLong(self->epoll) : NULL;
}

static PyObject *datagrams_watch(Datagrams *self, PyObject *args) {
    PyObject *given;
    int fd, role;
    if (!is_open(self) || !PyArg_ParseTuple(args, "Oi", &given, &role) ||
        (fd = PyObject_AsFileDescriptor(given)) < 0)
        return NULL;
    if (role < PROBES || role > FOREIGN)
        return PyErr_Format(PyExc_ValueError, "role %d", role);
    if (self->watched_count == self->watched_room) {
        int room = self->watched_room ? 2 * self->watched_room : 4;
        Watched *watched = PyMem_Realloc(self->watched, (size_t)room * sizeof *watched);
        if (watched == NULL)
            return PyErr_NoMemory();
        self->watched = watched;
        self->watched_room = room;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)self->watched_count};
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    self->watched[self->watched_count++] = (Watched){fd, (Role)role, 0};
    Py_RETURN_NONE;
}

/* A nonce that no probe has that is under way or remembered. */
static int next_nonce(Datagrams *self, uint64_t *nonce) {
    do {
        if (self->nonces != NULL) {
            PyObject *number = PyObject_CallNoArgs(self->nonces);
            if (number == NULL)
                return -1;
            *nonce = PyLong_AsUnsignedLongLong(number);
            Py_DECREF(number);
            if (PyErr_Occurred())
                return -1;
            continue;
        }
        if (self->random_left == 0) {
            if (getrandom(self->random, sizeof self->random, 0) != (ssize_t)sizeof self->random) {
                PyErr_SetFromErrno(PyExc_OSError);
                return -1;
            }
            self->random_left = NONCES;
        }
        *nonce = self->secret << 48 | self->random[--self->random_left] >> 16;
    } while (find(&self->probes, *nonce) != NULL);
    return 0;
}

/* An address as text, and a port, as the kernel wants them; the length, or 0 if it is none. */
static socklen_t parse_address(int family, const char *text, int port,
                               struct sockaddr_storage *to) {
    memset(to, 0, sizeof *to);
    if (port < 0 || port > 0xFFFF)
        return 0;
    if (family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)to;
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return inet_pton(AF_INET, text, &v4->sin_addr) == 1 ? sizeof *v4 : 0;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
    char plain[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "%");
    if (length >= sizeof plain)
        return 0;
    memcpy(plain, text, length);
    plain[length] = 0;
    if (text[length] == '%' && (v6->sin6_scope_id = if_nametoindex(text + length + 1)) == 0)
        return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    return inet_pton(AF_INET6, plain, &v6->sin6_addr) == 1 ? sizeof *v6 : 0;
}

static PyObject *datagrams_send(Datagrams *self, PyObject *args) {
    static uint8_t outbox[MAX_PACKET_BYTES]; /* the padding of a probe is zero */
    PyObject *socket, *probe, *entropy, *ttl_given, *qkey;
    int fd, port, flow, ttl;
    const char *address;
    long long token, timeout_ns;
    if (!is_open(self) || !PyArg_ParseTuple(args, "OO!", &socket, &PyTuple_Type, &probe) ||
        (fd = PyObject_AsFileDescriptor(socket)) < 0 ||
        !PyArg_ParseTuple(probe, "LsiiOLOO", &token, &address, &port, &flow, &entropy, &timeout_ns,
                          &ttl_given, &qkey))
        return NULL;
    ttl = ttl_given == Py_None ? -1 : (int)PyLong_AsLong(ttl_given);
    if (PyErr_Occurred())
        return NULL;
    struct sockaddr_storage to;
    socklen_t to_bytes = parse_address(self->family, address, port, &to);
    if (to_bytes == 0)
        return PyLong_FromLong(EAFNOSUPPORT);
    uint64_t nonce;
    if (next_nonce(self, &nonce) < 0)
        return NULL;
    size_t length = (size_t)self->probe_bytes;
    seal(&self->keys, outbox, length, PROBE, 0, nonce, 0, 0, self->keys.count ? self->keys.token[0] : 0);
    struct iovec part = {outbox, length};
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_name = &to, .msg_namelen = to_bytes, .msg_iov = &part, .msg_iovlen = 1};
    if (ttl >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = self->family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
        header->cmsg_type = self->family == AF_INET ? IP_TTL : IPV6_HOPLIMIT;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &ttl, sizeof ttl);
    }
    Instant posted;
    if (now_of(self, &posted) < 0)
        return NULL;
    if (sendmsg(fd, &message, MSG_DONTWAIT) < 0)
        return PyLong_FromLong(errno);
    if (remember(&self->probes, nonce, posted, timeout_ns, token) < 0)
        return PyErr_NoMemory();
    return PyLong_FromLong(0);
}

static PyObject *datagrams_poll(Datagrams *self, PyObject *unused) {
    (void)unused;
    if (!is_open(self) || poll_sockets(self) < 0)
        return NULL;
    PyObject *failed = PyList_New(0);
    if (failed == NULL)
        return NULL;
    for (int i = 0; self->failed_count > 0 && i < self->watched_count; i++) {
        Watched *socket = &self->watched[i];
        if (!socket->failed)
            continue;
        PyObject *fd = PyLong_FromLong(socket->fd);
        if (fd == NULL || PyList_Append(failed, fd) < 0) {
            Py_XDECREF(fd);
            Py_DECREF(failed);
            return NULL;
        }
        Py_DECREF(fd);
        socket->failed = 0;
        self->failed_count--;
    }
    return failed;
}

static PyObject *datagrams_take_completions(Datagrams *self, PyObject *unused) {
    (void)unused;
    Instant now;
    if (now_of(self, &now) < 0)
        return NULL;
    int64_t until_ns = self->drained ? now.monotonic_ns : now.monotonic_ns - UNDRAINED_NS;
    while (self->probes.heap_count > 0 && self->probes.heap[0].deadline_ns <= until_ns) {
        Entry *entry = find(&self->probes, heap_pop(&self->probes).nonce);
        if (entry == NULL || entry->stage != AWAITED)
            continue;
        int64_t token = entry->token;
        finish(&self->probes, entry, 0);
        if (complete(self, token, py.timeout, py.none, py.software, NULL, NULL) < 0)
            return NULL;
    }
    PyObject *empty = PyList_New(0);
    if (empty == NULL)
        return NULL;
    PyObject *completions = self->completions;
    self->completions = empty;
    self->urgent = 0;
    return completions;
}

static PyObject *datagrams_take_observations(Datagrams *self, PyObject *unused) {
    (void)unused;
    PyObject *seen = PyList_New(self->observed_count);
    if (seen == NULL)
        return NULL;
    for (int i = 0; i < self->observed_count; i++) {
        const Observation *o = &self->observed[i];
        PyObject *item = Py_BuildValue("ILNN", o->source, (long long)o->now_ns,
                                       PyBool_FromLong(o->genuine), PyBool_FromLong(o->token));
        if (item == NULL) {
            Py_DECREF(seen);
            return NULL;
        }
        PyList_SET_ITEM(seen, i, item);
    }
    int overfull = self->overfull;
    self->observed_count = self->overfull = 0;
    return Py_BuildValue("NN", seen, PyBool_FromLong(overfull));
}

static PyObject *datagrams_not_sent(Datagrams *self, PyObject *args) {
    long long token;
    PyObject *status;
    if (!PyArg_ParseTuple(args, "LO", &token, &status) ||
        complete(self, token, status, py.not_sent, py.software, NULL, NULL) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *datagrams_handle_node_report(Datagrams *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"nonce", "status", "reason", "reporter", "kernel_ns", NULL};
    unsigned long long nonce;
    PyObject *status, *reason, *reporter, *stamp, *clock;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K$OOOO", names, &nonce, &status, &reason,
                                     &reporter, &stamp))
        return NULL;
    long long kernel_ns = stamp == Py_None ? 0 : PyLong_AsLongLong(stamp);
    Instant now;
    if (PyErr_Occurred() || now_of(self, &now) < 0)
        return NULL;
    Entry *entry = awaited(self, nonce);
    if (entry == NULL)
        Py_RETURN_NONE;
    int64_t received_ns = place_arrival(stamp != Py_None, kernel_ns, now, entry, &clock);
    PyObject *times = times_object(entry, now.monotonic_ns, received_ns, Py_NewRef(Py_None));
    if (times == NULL)
        return NULL;
    int64_t token = entry->token;
    finish(&self->probes, entry, status != py.timeout);
    if (complete(self, token, status, reason, clock, times, Py_NewRef(reporter)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *datagrams_take_in(Datagrams *self, PyObject *args) {
    static uint8_t data[65536];
    int role, port;
    Py_buffer given;
    PyObject *stamp, *reply;
    const char *address;
    if (!PyArg_ParseTuple(args, "iy*Osi", &role, &given, &stamp, &address, &port))
        return NULL;
    long long kernel_ns = stamp == Py_None ? 0 : PyLong_AsLongLong(stamp);
    struct sockaddr_storage from;
    size_t length = (size_t)given.len;
    int good = length <= sizeof data && parse_address(self->family, address, port, &from) != 0;
    if (good)
        memcpy(data, given.buf, length);
    PyBuffer_Release(&given);
    if (PyErr_Occurred())
        return NULL;
    if (!good || role < PROBES || role > ANSWERS)
        return PyErr_Format(PyExc_ValueError, "role, size or address out of bounds");
    int replies = take_in(self, (Role)role, data, length, stamp != Py_None, kernel_ns, &from);
    if (replies < 0)
        return NULL;
    reply = replies ? PyBytes_FromStringAndSize((char *)data, (Py_ssize_t)length) : Py_NewRef(Py_None);
    return reply;
}

static PyObject *datagrams_counts(Datagrams *self, void *unused) {
    (void)unused;
    const struct {
        const char *name;
        long long value;
    } each[] = {{"duplicate", self->counts.duplicate}, {"late", self->counts.late},
                {"foreign", self->counts.foreign},     {"malformed", self->counts.malformed},
                {"forged", self->counts.forged},       {"answered", self->counts.answered},
                {"unanswered", self->counts.unanswered}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        PyObject *number = PyLong_FromLongLong(each[i].value);
        if (number == NULL)
            return NULL;
        int failed = PyObject_SetAttrString(self->counts_object, each[i].name, number);
        Py_DECREF(number);
        if (failed < 0)
            return NULL;
    }
    return Py_NewRef(self->counts_object);
}

static PyMethodDef datagrams_methods[] = {
    {"fileno", (PyCFunction)datagrams_fileno, METH_NOARGS, NULL},
    {"watch", (PyCFunction)datagrams_watch, METH_VARARGS, NULL},
    {"send", (PyCFunction)datagrams_send, METH_VARARGS, NULL},
    {"not_sent", (PyCFunction)datagrams_not_sent, METH_VARARGS, NULL},
    {"poll", (PyCFunction)datagrams_poll, METH_NOARGS, NULL},
    {"take_completions", (PyCFunction)datagrams_take_completions, METH_NOARGS, NULL},
    {"take_observations", (PyCFunction)datagrams_take_observations, METH_NOARGS, NULL},
    {"take_in", (PyCFunction)datagrams_take_in, METH_VARARGS, NULL},
    {"handle_node_report", (PyCFunction)(void (*)(void))datagrams_handle_node_report,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"close", (PyCFunction)datagrams_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef datagrams_properties[] = {
    {"counts", (getter)datagrams_counts, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyTypeObject datagrams_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "probers.transports._datagrams.Datagrams",
    .tp_basicsize = sizeof(Datagrams),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = datagrams_new,
    .tp_dealloc = (destructor)datagrams_dealloc,
    .tp_methods = datagrams_methods,
    .tp_getset = datagrams_properties,
};

/* ---- Waiting ---- */

static int append_fd(PyObject *list, long fd) {
    PyObject *number = PyLong_FromLong(fd);
    int failed = number == NULL ? -1 : PyList_Append(list, number);
    Py_XDECREF(number);
    return failed;
}

/* Return the transport behind a descriptor, borrowed; NULL: it is another descriptor, or, with an
 * error set, none. */
static Datagrams *transport_of(PyObject *transports, int fd) {
    PyObject *key = PyLong_FromLong(fd);
    if (key == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(transports, key);
    Py_DECREF(key);
    if (found == NULL || !PyObject_TypeCheck(found, &datagrams_type))
        return NULL;
    return (Datagrams *)found;
}

/* Handle events; add to `tell` the descriptors that Python has to look at. */
static int handle_events(PyObject *transports, const struct epoll_event *events, int count,
                         PyObject *tell) {
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        Datagrams *one = transport_of(transports, fd);
        if (PyErr_Occurred() || (one != NULL && poll_sockets(one) < 0))
            return -1;
        if ((one == NULL || has_to_tell(one)) && append_fd(tell, fd) < 0)
            return -1;
    }
    return 0;
}

/* Add the transports that have completions and are not told yet. */
static int add_completed(PyObject *transports, PyObject *tell) {
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(transports, &at, &key, &value)) {
        if (!PyObject_TypeCheck(value, &datagrams_type) ||
            PyList_GET_SIZE(((Datagrams *)value)->completions) == 0)
            continue;
        int told = PySequence_Contains(tell, key);
        if (told < 0 || (!told && PyList_Append(tell, key) < 0))
            return -1;
    }
    return 0;
}

/* Wait; Python has to look at the descriptors in `tell`. -1: an error is set. */
static int wait_until(int epoll, PyObject *transports, int64_t end_ns, Ticks *ticks, PyObject *tell,
                      PyObject *taken) {
    for (;;) {
        struct epoll_event events[MAX_EVENTS];
        int64_t until_ns;
        int turn = ticks->count ? turn_of(ticks, taken, &until_ns) : NOT_YET;
        if (turn < 0)
            return -1;
        int64_t left_ns = turn == PYTHONS ? 0 : end_ns - read_clock(CLOCK_MONOTONIC);
        int64_t sleep_ns = ticks->count && until_ns < left_ns ? until_ns : left_ns;
        int sleep_ms = sleep_ns <= 0 ? 0 : (int)((sleep_ns + 999999) / 1000000);
        int ready, error;
        Py_BEGIN_ALLOW_THREADS
        ready = epoll_wait(epoll, events, MAX_EVENTS, sleep_ms);
        error = errno;
        Py_END_ALLOW_THREADS
        if (ready < 0 && error != EINTR) {
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        /* A signal may have come to another thread than this one. */
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (ready > 0 && handle_events(transports, events, ready, tell) < 0)
            return -1;
        if (PyList_GET_SIZE(tell) > 0 || left_ns <= 0 ||
            (ready == 0 && read_clock(CLOCK_MONOTONIC) >= end_ns))
            return 0;
    }
}

static PyObject *wait_for_events(PyObject *module, PyObject *args) {
    (void)module;
    int epoll;
    PyObject *transports, *given;
    long long timeout_ns;
    Ticks ticks;
    if (!PyArg_ParseTuple(args, "iO!LO", &epoll, &PyDict_Type, &transports, &timeout_ns, &given) ||
        parse_ticks(given, &ticks) < 0)
        return NULL;
    PyObject *tell = PyList_New(0), *taken = PyList_New(0);
    if (tell == NULL || taken == NULL ||
        wait_until(epoll, transports, read_clock(CLOCK_MONOTONIC) + timeout_ns, &ticks, tell,
                   taken) < 0 ||
        add_completed(transports, tell) < 0) {
        Py_XDECREF(tell);
        Py_XDECREF(taken);
        return NULL;
    }
    return Py_BuildValue("NN", tell, taken);
}

/* ---- The module ---- */

static PyMethodDef module_methods[] = {{"wait", wait_for_events, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT,
                                               .m_name = "probers.transports._datagrams",
                                               .m_doc = "What a UDP transport does per packet.",
                                               .m_size = -1,
                                               .m_methods = module_methods};

static PyObject *fetch(const char *module, const char *object, const char *attribute) {
    PyObject *found = NULL, *imported = PyImport_ImportModule(module);
    PyObject *class = imported ? PyObject_GetAttrString(imported, object) : NULL;
    if (class != NULL)
        found = attribute ? PyObject_GetAttrString(class, attribute) : Py_NewRef(class);
    Py_XDECREF(class);
    Py_XDECREF(imported);
    return found;
}

PyMODINIT_FUNC PyInit__datagrams(void) {
    const struct {
        PyObject **to;
        const char *module, *object, *attribute;
    } wanted[] = {
        {&py.completion, "probers.transports.base", "Completion", NULL},
        {&py.timestamps, "probers.transports.rtt", "Timestamps", NULL},
        {&py.ok, "schemas.enums", "ProbeStatus", "OK"},
        {&py.bad_reply, "schemas.enums", "ProbeStatus", "BAD_REPLY"},
        {&py.timeout, "schemas.enums", "ProbeStatus", "TIMEOUT"},
        {&py.kernel, "schemas.enums", "ClockSource", "KERNEL"},
        {&py.software, "schemas.enums", "ClockSource", "SOFTWARE"},
        {&py.none, "probers.transports.base", "Reason", "NONE"},
        {&py.corrupt, "probers.transports.base", "Reason", "CORRUPT"},
        {&py.implausible, "probers.transports.base", "Reason", "IMPLAUSIBLE"},
        {&py.arrived_late, "probers.transports.base", "Reason", "ARRIVED_LATE"},
        {&py.not_sent, "probers.transports.base", "Reason", "NOT_SENT"},
    };
    crc_prepare();
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((*wanted[i].to = fetch(wanted[i].module, wanted[i].object, wanted[i].attribute)) == NULL)
            return NULL;
    /* Completions are built as tuples of these classes. */
    if (!PyType_IsSubtype((PyTypeObject *)py.completion, &PyTuple_Type) ||
        !PyType_IsSubtype((PyTypeObject *)py.timestamps, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "completions and their times are tuples");
        return NULL;
    }
    py.now = PyUnicode_InternFromString("now");
    if (py.now == NULL || PyType_Ready(&datagrams_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    if (module != NULL &&
        PyModule_AddObjectRef(module, "Datagrams", (PyObject *)&datagrams_type) < 0)
        Py_CLEAR(module);
    return module;
}
