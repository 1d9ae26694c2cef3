/* Reads RNICs' byte counters while the agent sleeps: probers/host/sampling.py says when, and
 * probers/host/counters.py which files. What is not a plain number is left to them.
 */
#ifndef SKELETONHUNTER_COUNTERS_H
#define SKELETONHUNTER_COUNTERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <unistd.h>

/* More RNICs, or files of one counter, than a host has: Python reads those. */
#define MAX_SOURCES 64
#define MAX_FILES 4
#define COUNTER_BYTES 32
/* More digits may not fit; so many, MAX_FILES times, do. */
#define MAX_DIGITS 18
#define BATCH_NS 1000000000LL

typedef struct {
    int count[2], fd[2][MAX_FILES]; /* what was sent, what was received */
} Source;

typedef struct {
    int64_t next_ns, tick_ns; /* wall clock */
    int count;
    Source sources[MAX_SOURCES];
} Ticks;

static int parse_descriptors(PyObject *given, int *fds, int *count) {
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) < 1 || PyTuple_GET_SIZE(given) > MAX_FILES) {
        PyErr_SetString(PyExc_ValueError, "one to four files for each counter");
        return -1;
    }
    *count = (int)PyTuple_GET_SIZE(given);
    for (int i = 0; i < *count; i++) {
        fds[i] = PyObject_AsFileDescriptor(PyTuple_GET_ITEM(given, i));
        if (fds[i] < 0)
            return -1;
    }
    return 0;
}

/* (next_ns, tick_ns, sources): of each source (descriptors, descriptors), or None where its files
 * are not open. None: nothing is read. */
static int parse_ticks(PyObject *given, Ticks *ticks) {
    PyObject *sources;
    long long next_ns, tick_ns;
    ticks->count = 0;
    if (given == Py_None)
        return 0;
    if (!PyTuple_Check(given) ||
        !PyArg_ParseTuple(given, "LLO!", &next_ns, &tick_ns, &PyTuple_Type, &sources)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "ticks are a tuple");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(sources);
    if (count < 1 || count > MAX_SOURCES || tick_ns < 1 || tick_ns > BATCH_NS || next_ns < 0 ||
        next_ns > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "ticks out of bounds");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *files = PyTuple_GET_ITEM(sources, i), *tx, *rx;
        Source *source = &ticks->sources[i];
        source->count[0] = source->count[1] = 0;
        if (files == Py_None)
            continue;
        if (!PyTuple_Check(files) || !PyArg_ParseTuple(files, "OO", &tx, &rx)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a source is a pair of tuples");
            return -1;
        }
        if (parse_descriptors(tx, source->fd[0], &source->count[0]) < 0 ||
            parse_descriptors(rx, source->fd[1], &source->count[1]) < 0)
            return -1;
    }
    ticks->next_ns = next_ns;
    ticks->tick_ns = tick_ns;
    ticks->count = (int)count;
    return 0;
}

/* Add up what files say; 0 if one of them cannot be read or has no plain number. */
static int read_units(const int *fds, int count, int64_t *units) {
    *units = 0;
    for (int i = 0; i < count; i++) {
        char text[COUNTER_BYTES];
        ssize_t got = pread(fds[i], text, sizeof text, 0), at = 0;
        int64_t value = 0;
        for (; at < got && at < MAX_DIGITS && text[at] >= '0' && text[at] <= '9'; at++)
            value = 10 * value + (text[at] - '0');
        if (at == 0 || (at != got && !(at + 1 == got && text[at] == '\n')))
            return 0;
        *units += value;
    }
    return 1;
}

/* What the sources say: (tick_ns, ((tx, rx, delay_ns) or None, ...)). */
static PyObject *read_tick(const Ticks *ticks, int *odd) {
    PyObject *readings = PyTuple_New(ticks->count);
    if (readings == NULL)
        return NULL;
    for (int i = 0; i < ticks->count; i++) {
        const Source *source = &ticks->sources[i];
        int64_t tx, rx;
        PyObject *reading;
        if (source->count[0] > 0 && read_units(source->fd[0], source->count[0], &tx) &&
            read_units(source->fd[1], source->count[1], &rx)) {
            int64_t delay_ns = read_clock(CLOCK_REALTIME) - ticks->next_ns;
            reading = Py_BuildValue("LLL", (long long)tx, (long long)rx,
                                    (long long)(delay_ns > 0 ? delay_ns : 0));
        } else {
            *odd = 1;
            reading = Py_NewRef(Py_None);
        }
        if (reading == NULL) {
            Py_DECREF(readings);
            return NULL;
        }
        PyTuple_SET_ITEM(readings, i, reading);
    }
    return Py_BuildValue("LN", (long long)ticks->next_ns, readings);
}

typedef enum { NOT_YET, READ, PYTHONS } TickTurn;

/* Read the counters if it is time, and set how long until the next tick. PYTHONS: Python has to
 * look, since a second is complete, a file is odd, ticks were missed, or the clock was set.
 * -1: an error. */
static int turn_of(Ticks *ticks, PyObject *taken, int64_t *until_ns) {
    *until_ns = ticks->next_ns - read_clock(CLOCK_REALTIME);
    if (*until_ns > ticks->tick_ns || *until_ns <= -ticks->tick_ns)
        return PYTHONS;
    if (*until_ns > 0)
        return NOT_YET;
    int odd = 0;
    PyObject *tick = read_tick(ticks, &odd);
    int failed = tick == NULL ? -1 : PyList_Append(taken, tick);
    Py_XDECREF(tick);
    if (failed < 0)
        return -1;
    ticks->next_ns += ticks->tick_ns;
    *until_ns = ticks->next_ns - read_clock(CLOCK_REALTIME);
    return odd || ticks->next_ns % BATCH_NS == 0 ? PYTHONS : READ;
}

#endif
