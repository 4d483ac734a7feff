/* Virtual memory of the driver, from which torch builds expandable segments: a range of addresses is reserved, and
   memory is mapped into it piece by piece. torch looks these functions up by name (`pretend_segment_function`).

   A piece is a number of bytes of a device. What is reserved and not mapped can't be read or written. */

#define _GNU_SOURCE
#include "pretend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NO_MEMORY = 2, GRANULE = 2 << 20 }; /* CUDA_ERROR_OUT_OF_MEMORY; bytes */
enum { KEPT = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

typedef struct {
    size_t size;
    int device;
} Piece;

typedef struct { /* the beginning of CUmemAllocationProp */
    int type, handles, place, device;
} Wanted;

extern int cudaGetDevice(int *device);

static int granularity(size_t *found, const void *wanted, int kind) { *found = GRANULE; return 0; }

static int reserve(void **range, size_t size, size_t alignment, void *near, unsigned long long flags) {
    int device;
    cudaGetDevice(&device);
    *range = mmap(NULL, size, PROT_NONE, KEPT, -1, 0);
    if (*range == MAP_FAILED) return NO_MEMORY;
    pretend_range(*range, size, device);
    return 0;
}

static int release_range(void *range, size_t size) {
    pretend_no_range(range);
    munmap(range, size);
    return 0;
}

static int create(Piece **piece, size_t size, const Wanted *wanted, unsigned long long flags) {
    pretend_count(ALLOCATION);
    if (pretend_use(wanted->device, (long)size)) return NO_MEMORY;
    *piece = malloc(sizeof **piece);
    **piece = (Piece){size, wanted->device};
    return 0;
}

static int release(Piece *piece) {
    pretend_use(piece->device, -(long)piece->size);
    free(piece);
    return 0;
}

static int map(void *place, size_t size, size_t from, Piece *piece, unsigned long long flags) {
    return mprotect(place, size, PROT_READ | PROT_WRITE) ? NO_MEMORY : 0;
}

static int unmap(void *place, size_t size) {
    return mmap(place, size, PROT_NONE, KEPT | MAP_FIXED, -1, 0) == MAP_FAILED ? NO_MEMORY : 0;
}

void *pretend_segment_function(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } known[] = {
        {"cuMemGetAllocationGranularity", granularity},
        {"cuMemAddressReserve", reserve},
        {"cuMemAddressFree", release_range},
        {"cuMemCreate", create},
        {"cuMemRelease", release},
        {"cuMemMap", map},
        {"cuMemUnmap", unmap},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) return known[i].function;
    return NULL;
}
