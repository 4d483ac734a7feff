/* What the parts of the pretend device share: counters, and a hook that Python may set. */
#ifndef PRETEND_H
#define PRETEND_H
#include <stddef.h>

/* What is counted. `emulation/counting.py` has the same numbers. */
enum {
    LAUNCH,         /* a kernel, whoever launches it: torch, Triton or a library */
    STREAM_WAIT,    /* the host waits for a stream ... */
    DEVICE_WAIT,    /* ... for all streams ... */
    EVENT_WAIT,     /* ... for an event ... */
    BLOCKING_COPY,  /* ... or for a copy */
    HOST_TO_DEVICE, /* copies, by direction */
    DEVICE_TO_HOST,
    DEVICE_TO_DEVICE,
    FILL,           /* memset */
    ALLOCATION,     /* what the caching allocator asks of the device */
    PRODUCT,        /* those of the launches that are matrix products of cuBLAS */
    COLLECTIVE,     /* of NCCL */
    COUNTERS = 16,
};

extern long pretend_counts[COUNTERS];
/* Count one, and call the hook if it is for this kind. */
void pretend_count(int what);

/* Memory that `segments.c` maps piece by piece: its ranges of addresses, its bytes, and what torch calls. */
void pretend_range(void *start, size_t size, int device);
void pretend_no_range(void *start);
int pretend_use(int device, long size);
void *pretend_segment_function(const char *name);
#endif
