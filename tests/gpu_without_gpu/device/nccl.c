/* NCCL among processes of one machine: collectives that really exchange and add.

   The processes of a communicator share a file in memory with a slot for each of them. A collective writes a piece
   into its own slot, waits for the others, reads what it needs of all slots, and waits again. Each pair of processes has
   a box for what one sends the other, a piece at a time. What others don't join ends with an error after two minutes. */

#define _GNU_SOURCE
#include "pretend.h"

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The few declarations that are needed, instead of nccl.h, whose functions differ between versions. */
typedef int Result;
enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_USAGE = 5 };
enum { SUM, PROD, MAX, MIN, AVG };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 };
typedef struct { char bytes[128]; } Id;

enum { SLOT = 1 << 20, BOX = 1 << 16, PATIENCE_S = 120 };
typedef struct {
    volatile int arrived, round; /* of the barrier */
} Meeting;
typedef struct {
    int size, rank, splits;
    char name[200];
    Meeting *meeting;
    char *slots; /* size x SLOT bytes */
    struct Box *boxes; /* size x size: from, to */
} Comm;
typedef struct Box {
    volatile size_t full; /* bytes that were sent and not received */
    char bytes[BOX];
} Box;

static Result meet(Comm *c) {
    int round = c->meeting->round;
    if (__sync_add_and_fetch(&c->meeting->arrived, 1) == c->size) {
        c->meeting->arrived = 0;
        __sync_fetch_and_add(&c->meeting->round, 1);
        return SUCCESS;
    }
    time_t end = time(NULL) + PATIENCE_S;
    while (c->meeting->round == round) {
        if (time(NULL) > end) {
            fprintf(stderr, "pretend NCCL: rank %d waited %d s for others in a collective\n", c->rank, PATIENCE_S);
            return SYSTEM_ERROR;
        }
        usleep(20);
    }
    return SUCCESS;
}

static Result join(Comm *c) {
    size_t slots = 4096 + (size_t)c->size * SLOT, bytes = slots + (size_t)c->size * c->size * sizeof(Box);
    int file = open(c->name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, bytes)) return SYSTEM_ERROR; /* new bytes are zeros: a barrier nobody came to */
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (start == MAP_FAILED) return SYSTEM_ERROR;
    c->meeting = (Meeting *)start, c->slots = start + 4096, c->boxes = (Box *)(start + slots);
    Result result = meet(c);
    unlink(c->name); /* all have it open; nothing stays behind */
    return result;
}

/* ---- communicators ---- */

Result ncclGetVersion(int *version) { *version = 22907; return SUCCESS; }
Result ncclGetUniqueId(Id *id) {
    static int made;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *folder = getenv("TMPDIR");
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "%.60s/pretend-nccl-%d-%d-%ld", folder ? folder : "/tmp", getpid(), made++,
             now.tv_nsec);
    return SUCCESS;
}
static Result open_comm(void **comm, int size, const char *name, int rank) {
    Comm *c = calloc(1, sizeof *c);
    c->size = size, c->rank = rank;
    snprintf(c->name, sizeof c->name, "%s", name);
    *comm = c;
    return join(c);
}
Result ncclCommInitRank(void **comm, int size, Id id, int rank) { return open_comm(comm, size, id.bytes, rank); }
Result ncclCommInitRankConfig(void **comm, int size, Id id, int rank, void *config) {
    return open_comm(comm, size, id.bytes, rank);
}
Result ncclCommInitRankScalable(void **comm, int size, int rank, int ids, Id *id, void *config) {
    return open_comm(comm, size, id->bytes, rank);
}
Result ncclCommSplit(Comm *c, int color, int key, void **comm, void *config) {
    int mine[2] = {color, key}, rank = 0, size = 0;
    memcpy(c->slots + c->rank * (size_t)SLOT, mine, sizeof mine);
    if (meet(c)) return SYSTEM_ERROR;
    for (int i = 0; i < c->size; i++) {
        int *other = (int *)(c->slots + i * (size_t)SLOT);
        if (other[0] != color) continue;
        size++;
        if (other[1] < key || (other[1] == key && i < c->rank)) rank++;
    }
    if (meet(c)) return SYSTEM_ERROR;
    c->splits++;
    if (color < 0) { *comm = NULL; return SUCCESS; }
    char name[200];
    snprintf(name, sizeof name, "%.150s-%d-%d", c->name, c->splits, color);
    return open_comm(comm, size, name, rank);
}
Result ncclCommCount(Comm *c, int *size) { *size = c->size; return SUCCESS; }
Result ncclCommUserRank(Comm *c, int *rank) { *rank = c->rank; return SUCCESS; }
Result ncclCommGetAsyncError(Comm *c, Result *error) { *error = SUCCESS; return SUCCESS; }
const char *ncclGetErrorString(Result result) { return result ? "pretend NCCL error" : "no error"; }
const char *ncclGetLastError(Comm *c) { return ""; }

/* ---- numbers ---- */

static size_t width(int type) {
    static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type <= BFLOAT16 ? bytes[type] : 1;
}
static double number(const char *at, int type) {
    uint32_t bits = 0;
    float value;
    switch (type) {
    case FLOAT16: return *(const _Float16 *)at;
    case FLOAT32: return *(const float *)at;
    case FLOAT64: return *(const double *)at;
    default: /* bfloat16: the upper half of a float */
        bits = (uint32_t)*(const uint16_t *)at << 16;
        memcpy(&value, &bits, 4);
        return value;
    }
}
static void set_number(char *at, int type, double value) {
    float single = (float)value;
    uint32_t bits;
    switch (type) {
    case FLOAT16: *(_Float16 *)at = (_Float16)value; break;
    case FLOAT32: *(float *)at = single; break;
    case FLOAT64: *(double *)at = value; break;
    default:
        memcpy(&bits, &single, 4);
        if ((bits & 0x7f800000) != 0x7f800000) bits += 0x7fff + ((bits >> 16) & 1); /* to nearest, ties to even */
        *(uint16_t *)at = bits >> 16;
    }
}
static int64_t whole(const char *at, int type) {
    switch (type) {
    case INT8: return *(const int8_t *)at;
    case UINT8: return *(const uint8_t *)at;
    case INT32: return *(const int32_t *)at;
    case UINT32: return *(const uint32_t *)at;
    default: return *(const int64_t *)at;
    }
}
#define COMBINE(a, b) (op == PROD ? (a) * (b) : op == MAX ? ((a) > (b) ? (a) : (b)) : op == MIN ? ((a) < (b) ? (a) : (b)) : (a) + (b))

/* `count` numbers at `offset` of all slots, combined in the order of the ranks, so that all get the same. */
static void reduce(Comm *c, char *to, size_t offset, size_t count, int type, int op) {
    size_t w = width(type);
    for (size_t i = 0; i < count; i++) {
        const char *first = c->slots + offset + i * w;
        if (type >= FLOAT16) {
            double total = number(first, type);
            for (int r = 1; r < c->size; r++) total = COMBINE(total, number(first + r * (size_t)SLOT, type));
            set_number(to + i * w, type, op == AVG ? total / c->size : total);
        } else {
            int64_t total = whole(first, type);
            for (int r = 1; r < c->size; r++) total = COMBINE(total, whole(first + r * (size_t)SLOT, type));
            if (op == AVG) total /= c->size;
            memcpy(to + i * w, &total, w); /* little-endian: the low bytes come first */
        }
    }
}

/* ---- collectives: each goes through its data piece by piece ---- */

#define PIECES(bytes, piece) for (size_t at = 0, n; at < (bytes) && (n = (bytes) - at < (piece) ? (bytes) - at : (piece)); at += n)
#define MEET if (meet(c)) return SYSTEM_ERROR

static char *slot(Comm *c, int rank) { return c->slots + rank * (size_t)SLOT; }

Result ncclAllReduce(const char *from, char *to, size_t count, int type, int op, Comm *c, void *stream) {
    pretend_count(COLLECTIVE);
    PIECES(count * width(type), SLOT) {
        memcpy(slot(c, c->rank), from + at, n);
        MEET;
        reduce(c, to + at, 0, n / width(type), type, op);
        MEET;
    }
    return SUCCESS;
}
Result ncclReduce(const char *from, char *to, size_t count, int type, int op, int root, Comm *c, void *stream) {
    pretend_count(COLLECTIVE);
    PIECES(count * width(type), SLOT) {
        memcpy(slot(c, c->rank), from + at, n);
        MEET;
        if (c->rank == root) reduce(c, to + at, 0, n / width(type), type, op);
        MEET;
    }
    return SUCCESS;
}
Result ncclBroadcast(const char *from, char *to, size_t count, int type, int root, Comm *c, void *stream) {
    pretend_count(COLLECTIVE);
    PIECES(count * width(type), SLOT) {
        if (c->rank == root) memcpy(slot(c, root), from + at, n);
        MEET;
        memcpy(to + at, slot(c, root), n);
        MEET;
    }
    return SUCCESS;
}
Result ncclBcast(char *data, size_t count, int type, int root, Comm *c, void *stream) {
    return ncclBroadcast(data, data, count, type, root, c, stream);
}
Result ncclAllGather(const char *from, char *to, size_t count, int type, Comm *c, void *stream) {
    pretend_count(COLLECTIVE);
    size_t bytes = count * width(type);
    const char *own = from;
    PIECES(bytes, SLOT) {
        memcpy(slot(c, c->rank), own + at, n);
        MEET;
        for (int r = 0; r < c->size; r++) memcpy(to + r * bytes + at, slot(c, r), n);
        MEET;
    }
    return SUCCESS;
}
Result ncclReduceScatter(const char *from, char *to, size_t count, int type, int op, Comm *c, void *stream) {
    pretend_count(COLLECTIVE);
    size_t bytes = count * width(type), piece = SLOT / c->size / 8 * 8; /* every slot holds a piece for each rank */
    PIECES(bytes, piece) {
        for (int r = 0; r < c->size; r++) memcpy(slot(c, c->rank) + r * piece, from + r * bytes + at, n);
        MEET;
        reduce(c, to + at, c->rank * piece, n / width(type), type, op);
        MEET;
    }
    return SUCCESS;
}

static Result refused(const char *what) {
    fprintf(stderr, "pretend NCCL: %s is not emulated\n", what);
    return INVALID_USAGE;
}

/* ---- sends and receives: those of a group go on side by side, until all are done ---- */

enum { MOST = 4096 };
typedef struct {
    Comm *comm;
    char *at;
    size_t left;
    int peer, sends;
} Passing;
static __thread Passing passing[MOST];
static __thread int passings, groups;

/* Whether a piece was moved. */
static int moved(Passing *p) {
    int from = p->sends ? p->comm->rank : p->peer, to = p->sends ? p->peer : p->comm->rank;
    Box *box = p->comm->boxes + from * p->comm->size + to;
    if (!p->left || p->sends == (box->full > 0)) return 0;
    size_t n = p->sends ? (p->left < BOX ? p->left : BOX) : box->full;
    if (p->sends) memcpy(box->bytes, p->at, n);
    else memcpy(p->at, box->bytes, n);
    __sync_synchronize();
    box->full = p->sends ? n : 0;
    p->at += n, p->left -= n;
    return 1;
}
static Result pass(void) {
    time_t end = time(NULL) + PATIENCE_S;
    for (int left = 1; left;) {
        int any = left = 0;
        for (int i = 0; i < passings; i++) {
            int earlier = 0; /* of the same pair: pieces come in the order in which they were sent */
            for (int j = 0; j < i; j++)
                earlier |= passing[j].left && passing[j].peer == passing[i].peer && passing[j].sends == passing[i].sends;
            if (!earlier) any |= moved(passing + i);
            left |= passing[i].left > 0;
        }
        if (any) end = time(NULL) + PATIENCE_S;
        else if (left) usleep(20);
        if (time(NULL) > end) {
            fprintf(stderr, "pretend NCCL: a send or receive waited %d s for its peer\n", PATIENCE_S);
            passings = 0;
            return SYSTEM_ERROR;
        }
    }
    passings = 0;
    return SUCCESS;
}
static Result add(Comm *c, char *at, size_t bytes, int peer, int sends) {
    if (passings == MOST) return refused("a group of so many sends");
    if (bytes) passing[passings++] = (Passing){c, at, bytes, peer, sends};
    return groups ? SUCCESS : pass();
}
Result ncclGroupStart() { groups++; return SUCCESS; }
Result ncclGroupEnd() { return --groups ? SUCCESS : pass(); }
Result ncclSend(char *from, size_t count, int type, int peer, Comm *c, void *stream) {
    pretend_count(COLLECTIVE);
    return add(c, from, count * width(type), peer, 1);
}
Result ncclRecv(char *to, size_t count, int type, int peer, Comm *c, void *stream) {
    return add(c, to, count * width(type), peer, 0);
}
Result ncclAlltoAll(char *from, char *to, size_t count, int type, Comm *c, void *stream) {
    size_t bytes = count * width(type);
    pretend_count(COLLECTIVE);
    groups++;
    for (int r = 0; r < c->size; r++) add(c, from + r * bytes, bytes, r, 1), add(c, to + r * bytes, bytes, r, 0);
    return ncclGroupEnd();
}
Result ncclRedOpCreatePreMulSum() { return refused("a sum with a factor"); }

/* Everything else that torch asks for (groups, registration, ends) is granted and does nothing. */
#define RUNS(name) SETS(name)
#define SETS(name) \
    Result name() { return SUCCESS; }
#include "nccl_names.h"
