/* Records to Avro's bytes: `schemas.record_writer` says what is written and how, `schemas.codec`
 * and fastavro are what it equals. A value that is not plainly of its field's type is left to
 * them: `write` returns None, and they write it or say what is wrong.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define MAX_NUMBER_BYTES 10
#define FIRST_BYTES 4096
/* A buffer of more is given back: a round has 3 KB, a list of many targets a megabyte. */
#define KEPT_BYTES 65536
/* A contract's records have two levels; what is nested deeper has no plan. */
#define MAX_DEPTH 8

typedef enum { RECORD, ARRAY, LONG, INT, STRING, BYTES, DOUBLE, BOOLEAN, ENUM } Kind;
typedef enum { NOT_NULLABLE, NULL_FIRST, NULL_LAST } Nullable;

typedef struct Node {
    Kind kind;
    Nullable nullable;
    PyTypeObject *class; /* of a record */
    /* The fields of a record; the items of an array; or the symbols of an enum, whose names are
     * the members themselves, each at its place in the schema. */
    Py_ssize_t count;
    PyObject **names;
    struct Node *children;
} Node;

typedef struct {
    uint8_t *bytes;
    size_t used, room;
} Out;

typedef struct {
    PyObject_HEAD
    Node plan;
    Out out;
} RecordWriter;

/* ---- The plan: (kind, nullable, class, names, children) of each node ---- */

static void node_clear(Node *node) {
    for (Py_ssize_t i = 0; node->names != NULL && i < node->count; i++)
        Py_XDECREF(node->names[i]);
    for (Py_ssize_t i = 0; node->children != NULL && i < node->count; i++)
        node_clear(&node->children[i]);
    PyMem_Free(node->names);
    PyMem_Free(node->children);
    Py_XDECREF(node->class);
    memset(node, 0, sizeof *node);
}

static int node_parse(Node *node, PyObject *given, int depth) {
    int kind, nullable;
    PyObject *class, *names, *children;
    if (depth > MAX_DEPTH || !PyTuple_Check(given)) {
        PyErr_SetString(PyExc_ValueError, "a plan consists of tuples, not nested deeper than 8");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "iiOO!O!", &kind, &nullable, &class, &PyTuple_Type, &names,
                          &PyTuple_Type, &children))
        return -1;
    Py_ssize_t named = PyTuple_GET_SIZE(names), nested = PyTuple_GET_SIZE(children);
    int fits = kind == RECORD  ? PyType_Check(class) && named == nested && named > 0
               : kind == ARRAY ? named == 0 && nested == 1
               : kind == ENUM  ? named > 0 && nested == 0
                               : named == 0 && nested == 0;
    if (kind < RECORD || kind > ENUM || nullable < NOT_NULLABLE || nullable > NULL_LAST || !fits) {
        PyErr_Format(PyExc_ValueError, "a node of kind %d that is none", kind);
        return -1;
    }
    node->kind = (Kind)kind;
    node->nullable = (Nullable)nullable;
    if (kind == RECORD)
        node->class = (PyTypeObject *)Py_NewRef(class);
    Py_ssize_t count = named > nested ? named : nested;
    if (named > 0 && (node->names = PyMem_Calloc((size_t)count, sizeof *node->names)) == NULL)
        goto no_memory;
    if (nested > 0 && (node->children = PyMem_Calloc((size_t)count, sizeof *node->children)) == NULL)
        goto no_memory;
    node->count = count;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = Py_NewRef(PyTuple_GET_ITEM(names, i));
        if (kind == RECORD && !PyUnicode_CheckExact(name)) {
            Py_DECREF(name);
            PyErr_SetString(PyExc_TypeError, "a field's name is a str");
            return -1;
        }
        if (kind == RECORD)
            PyUnicode_InternInPlace(&name);
        node->names[i] = name;
    }
    for (Py_ssize_t i = 0; i < nested; i++)
        if (node_parse(&node->children[i], PyTuple_GET_ITEM(children, i), depth + 1) < 0)
            return -1;
    return 0;
no_memory:
    PyErr_NoMemory();
    return -1;
}

/* ---- Writing: 1: written, 0: not plain, -1: an error is set ---- */

static int make_room(Out *out, size_t more) {
    if (out->bytes != NULL && out->room - out->used >= more)
        return 1;
    if (more > PY_SSIZE_T_MAX / 4 || out->used > PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        return -1;
    }
    size_t room = out->room ? out->room : FIRST_BYTES;
    while (room - out->used < more)
        room *= 2;
    uint8_t *bytes = PyMem_Realloc(out->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    out->bytes = bytes;
    out->room = room;
    return 1;
}

static int put_number(Out *out, int64_t number) {
    if (make_room(out, MAX_NUMBER_BYTES) < 0)
        return -1;
    uint64_t left = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    while (left > 0x7F) {
        out->bytes[out->used++] = (uint8_t)(left | 0x80);
        left >>= 7;
    }
    out->bytes[out->used++] = (uint8_t)left;
    return 1;
}

static int put_bytes(Out *out, const char *bytes, Py_ssize_t count) {
    if (put_number(out, count) < 0 || make_room(out, (size_t)count) < 0)
        return -1;
    memcpy(out->bytes + out->used, bytes, (size_t)count);
    out->used += (size_t)count;
    return 1;
}

static int put_integer(Out *out, PyObject *value, int64_t least, int64_t most) {
    int overflow;
    if (!PyLong_CheckExact(value))
        return 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || number < least || number > most)
        return 0;
    return put_number(out, number);
}

static int put_text(Out *out, PyObject *value) {
    Py_ssize_t count;
    if (!PyUnicode_CheckExact(value))
        return 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &count);
    if (text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    return put_bytes(out, text, count);
}

static int put_double(Out *out, PyObject *value) {
    if (!PyFloat_CheckExact(value))
        return 0;
    if (make_room(out, 8) < 0 ||
        PyFloat_Pack8(PyFloat_AS_DOUBLE(value), (char *)out->bytes + out->used, 1) < 0)
        return -1;
    out->used += 8;
    return 1;
}

static int put_boolean(Out *out, PyObject *value) {
    if (value != Py_True && value != Py_False)
        return 0;
    if (make_room(out, 1) < 0)
        return -1;
    out->bytes[out->used++] = value == Py_True;
    return 1;
}

static int put_symbol(Out *out, const Node *node, PyObject *value) {
    for (Py_ssize_t i = 0; i < node->count; i++)
        if (node->names[i] == value)
            return put_number(out, i);
    return 0;
}

static int put(Out *out, const Node *node, PyObject *value);

static int put_items(Out *out, const Node *node, PyObject *value) {
    if (!PyTuple_CheckExact(value))
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(value);
    if (count > 0 && put_number(out, count) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        int written = put(out, node->children, PyTuple_GET_ITEM(value, i));
        if (written <= 0)
            return written;
    }
    return put_number(out, 0);
}

static int put_record(Out *out, const Node *node, PyObject *value) {
    if (!Py_IS_TYPE(value, node->class))
        return 0;
    for (Py_ssize_t i = 0; i < node->count; i++) {
        PyObject *part = PyObject_GetAttr(value, node->names[i]);
        if (part == NULL)
            return -1;
        int written = put(out, &node->children[i], part);
        Py_DECREF(part);
        if (written <= 0)
            return written;
    }
    return 1;
}

static int put(Out *out, const Node *node, PyObject *value) {
    if (node->nullable != NOT_NULLABLE) {
        int is_null = value == Py_None;
        if (put_number(out, is_null == (node->nullable == NULL_LAST)) < 0)
            return -1;
        if (is_null)
            return 1;
    }
    switch (node->kind) {
    case RECORD:
        return put_record(out, node, value);
    case ARRAY:
        return put_items(out, node, value);
    case LONG:
        return put_integer(out, value, INT64_MIN, INT64_MAX);
    case INT:
        return put_integer(out, value, INT32_MIN, INT32_MAX);
    case STRING:
        return put_text(out, value);
    case BYTES:
        return PyBytes_CheckExact(value)
                   ? put_bytes(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
                   : 0;
    case DOUBLE:
        return put_double(out, value);
    case BOOLEAN:
        return put_boolean(out, value);
    case ENUM:
        return put_symbol(out, node, value);
    }
    return 0;
}

/* ---- The Python type ---- */

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *plan;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "a plan, by its place");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O", &plan))
        return NULL;
    RecordWriter *self = (RecordWriter *)type->tp_alloc(type, 0); /* all zero */
    if (self != NULL && node_parse(&self->plan, plan, 0) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void writer_dealloc(RecordWriter *self) {
    node_clear(&self->plan);
    PyMem_Free(self->out.bytes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *writer_write(RecordWriter *self, PyObject *args) {
    PyObject *head, *record;
    if (!PyArg_ParseTuple(args, "O!O", &PyBytes_Type, &head, &record))
        return NULL;
    /* An attribute may be code, and that may write by this very writer. */
    Out out = self->out;
    self->out = (Out){0};
    out.used = 0;
    size_t head_bytes = (size_t)PyBytes_GET_SIZE(head);
    int written = make_room(&out, head_bytes);
    if (written > 0) {
        memcpy(out.bytes, PyBytes_AS_STRING(head), head_bytes);
        out.used = head_bytes;
        written = put(&out, &self->plan, record);
    }
    PyObject *found = written < 0   ? NULL
                      : written == 0 ? Py_NewRef(Py_None)
                                     : PyBytes_FromStringAndSize((char *)out.bytes,
                                                                 (Py_ssize_t)out.used);
    PyMem_Free(self->out.bytes);
    self->out = out;
    if (self->out.room > KEPT_BYTES) {
        PyMem_Free(self->out.bytes);
        self->out = (Out){0};
    }
    return found;
}

static PyMethodDef writer_methods[] = {{"write", (PyCFunction)writer_write, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

static PyTypeObject writer_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "schemas._record_writer.RecordWriter",
    .tp_basicsize = sizeof(RecordWriter),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = writer_new,
    .tp_dealloc = (destructor)writer_dealloc,
    .tp_methods = writer_methods,
};

static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT,
                                               .m_name = "schemas._record_writer",
                                               .m_doc = "Records to Avro's bytes.",
                                               .m_size = -1};

PyMODINIT_FUNC PyInit__record_writer(void) {
    if (PyType_Ready(&writer_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    if (module != NULL &&
        PyModule_AddObjectRef(module, "RecordWriter", (PyObject *)&writer_type) < 0)
        Py_CLEAR(module);
    return module;
}
