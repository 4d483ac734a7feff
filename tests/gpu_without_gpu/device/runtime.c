/* The CUDA runtime (libcudart) of a device that is not there.

   Loaded by LD_PRELOAD before torch's own runtime. Streams and events are names for nothing, since all that happens
   happens at once: a copy is a memmove, a kernel is counted and computes nothing. Memory is the host's, reserved and
   not touched, so that 80 GB cost nothing until something is written.

   PRETEND_GPUS (1)  PRETEND_MEMORY_GB (80)  PRETEND_CAPABILITY (9.0): what the device says of itself.
   PRETEND_SKIP_LARGE_COPIES: copies and fills above 256 KiB do nothing, where only sizes are of interest. */

#define _GNU_SOURCE
#include "pretend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_runtime_api.h"

/* ---- counters ---- */

long pretend_counts[COUNTERS];
static void (*hook)(int what);
static unsigned long long hooked; /* the kinds that it is called for, as bits */
static __thread int in_hook; /* what the hook itself does is not told to it */
static __thread int silent;  /* this thread's calls are not counted */

/* Python's callback for the kinds of events whose bits are set; NULL takes it away. It takes Python's lock, so kinds that
   the caching allocator counts under its own lock must not be among them: a thread that allocates under Python's lock
   would wait for the one in the callback, and that one for it. */
void pretend_set_hook(void (*function)(int what), unsigned long long kinds) { hook = function, hooked = kinds; }

/* Calls of this thread are not counted between +1 and -1: the emulation's own, which no GPU would see. */
void pretend_silence(int change) { silent += change; }

void pretend_count(int what) {
    if (silent) return;
    __sync_fetch_and_add(&pretend_counts[what], 1);
    if (hook && hooked >> what & 1 && !in_hook) {
        in_hook = 1;
        hook(what);
        in_hook = 0;
    }
}

/* ---- what the device says of itself ---- */

#define DONE return cudaSuccess
enum { MAX_DEVICES = 16 };
static __thread int current; /* as in CUDA, each thread has its own current device */

static int device_count(void) {
    const char *said = getenv("PRETEND_GPUS");
    int count = said ? atoi(said) : 1;
    return count < MAX_DEVICES ? count : MAX_DEVICES;
}

static size_t memory_size(void) {
    const char *said = getenv("PRETEND_MEMORY_GB");
    return (size_t)((said ? atof(said) : 80.0) * 1e9);
}

static int capability(int minor) {
    const char *said = getenv("PRETEND_CAPABILITY");
    const char *dot = said ? strchr(said, '.') : NULL;
    if (minor) return dot ? atoi(dot + 1) : 0;
    return said ? atoi(said) : 9;
}

enum { /* of an H100 */
    PROCESSORS = 132,
    THREADS_PER_BLOCK = 1024,
    THREADS_PER_PROCESSOR = 2048,
    REGISTERS = 65536,
    SHARED_PER_BLOCK = 49152,
    SHARED_PER_BLOCK_ASKED = 232448,
    SHARED_PER_PROCESSOR = 233472,
    L2_CACHE = 52428800,
};

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "Pretend GPU");
    p->major = capability(0), p->minor = capability(1);
    p->totalGlobalMem = memory_size();
    p->multiProcessorCount = PROCESSORS;
    p->warpSize = 32;
    p->maxThreadsPerBlock = THREADS_PER_BLOCK, p->maxThreadsPerMultiProcessor = THREADS_PER_PROCESSOR;
    p->sharedMemPerBlock = SHARED_PER_BLOCK, p->sharedMemPerBlockOptin = SHARED_PER_BLOCK_ASKED;
    p->sharedMemPerMultiprocessor = SHARED_PER_PROCESSOR;
    p->regsPerBlock = p->regsPerMultiprocessor = REGISTERS;
    p->l2CacheSize = L2_CACHE;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->textureAlignment = 512, p->maxBlocksPerMultiProcessor = 32, p->memoryBusWidth = 5120;
    p->concurrentKernels = p->unifiedAddressing = p->managedMemory = 1, p->asyncEngineCount = 3;
    DONE;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device) {
    switch ((int)what) {
    case cudaDevAttrMaxThreadsPerBlock: *value = THREADS_PER_BLOCK; break;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = SHARED_PER_BLOCK; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_PER_BLOCK_ASKED; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = SHARED_PER_PROCESSOR; break;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = REGISTERS; break;
    case cudaDevAttrWarpSize: case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = PROCESSORS; break;
    case cudaDevAttrL2CacheSize: *value = L2_CACHE; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = THREADS_PER_PROCESSOR; break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability(0); break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability(1); break;
    default: *value = 1; /* "can it do so?" of everything else */
    }
    DONE;
}

cudaError_t cudaGetDeviceCount(int *count) { *count = device_count(); DONE; }
cudaError_t cudaGetDevice(int *device) { *device = current; DONE; }
cudaError_t cudaSetDevice(int device) { current = device; DONE; }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; DONE; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; DONE; }
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) { strncpy(id, "0000:00:00.0", size); DONE; }
cudaError_t cudaDeviceCanAccessPeer(int *able, int device, int peer) { *able = 1; DONE; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { DONE; }
cudaError_t cudaGetLastError(void) { DONE; }
cudaError_t cudaPeekAtLastError(void) { DONE; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "pretend error"; }
const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }
cudaError_t cudaProfilerStart(void) { DONE; }
cudaError_t cudaProfilerStop(void) { DONE; }

/* Functions of the driver that torch looks up by name: those of segments, or one that says yes to everything. */
static int yes(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result) {
    *function = pretend_segment_function(name);
    if (!*function) *function = (void *)yes;
    if (result) *result = cudaDriverEntryPointSuccess;
    DONE;
}

/* ---- streams and events: handles that name nothing, since everything is done when a call returns ---- */

static void *handle(void) { return malloc(64); }

cudaError_t cudaStreamCreate(cudaStream_t *s) { *s = handle(); DONE; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { *s = handle(); DONE; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) { *s = handle(); DONE; }
cudaError_t cudaStreamDestroy(cudaStream_t s) { DONE; }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority) { *priority = 0; DONE; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; DONE; }
cudaError_t cudaStreamQuery(cudaStream_t s) { DONE; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) { DONE; } /* the device waits, not we */
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    DONE;
}
cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count) {
    *status = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    DONE;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { DONE; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { *e = handle(); DONE; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { *e = handle(); DONE; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { DONE; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { DONE; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) { DONE; }
cudaError_t cudaEventQuery(cudaEvent_t e) { DONE; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { *ms = 1; DONE; }

/* Where the host would wait. */
cudaError_t cudaStreamSynchronize(cudaStream_t s) { pretend_count(STREAM_WAIT); DONE; }
cudaError_t cudaDeviceSynchronize(void) { pretend_count(DEVICE_WAIT); DONE; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { pretend_count(EVENT_WAIT); DONE; }

/* ---- memory ---- */

typedef struct {
    char *start;
    size_t size;
    int device;
} Block;

enum { MAX_BLOCKS = 1 << 16 };
static Block on_device[MAX_BLOCKS], pinned[MAX_BLOCKS];
static int blocks_on_device, blocks_pinned;
static size_t used[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int find(const Block *blocks, int count, const void *place) {
    for (int i = 0; i < count; i++)
        if ((const char *)place >= blocks[i].start && (const char *)place < blocks[i].start + blocks[i].size) return i;
    return -1;
}

/* A range of addresses of a device; what is mapped there is counted by its pieces. */
void pretend_range(void *start, size_t size, int device) {
    pthread_mutex_lock(&lock);
    if (blocks_on_device < MAX_BLOCKS) on_device[blocks_on_device++] = (Block){start, size, device};
    pthread_mutex_unlock(&lock);
}

void pretend_no_range(void *start) {
    pthread_mutex_lock(&lock);
    int i = find(on_device, blocks_on_device, start);
    if (i >= 0) on_device[i] = on_device[--blocks_on_device];
    pthread_mutex_unlock(&lock);
}

/* Use so many bytes more of a device; 1 where it has not so many. */
int pretend_use(int device, long size) {
    pthread_mutex_lock(&lock);
    int full = size > 0 && used[device] + size > memory_size();
    if (!full) used[device] += size;
    pthread_mutex_unlock(&lock);
    return full;
}

cudaError_t cudaMalloc(void **place, size_t size) {
    pretend_count(ALLOCATION);
    cudaError_t result = cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    *place = NULL;
    if (used[current] + size <= memory_size() && blocks_on_device < MAX_BLOCKS) {
        int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, reserved, -1, 0);
        if (start != MAP_FAILED) {
            on_device[blocks_on_device++] = (Block){start, size, current};
            used[current] += size;
            *place = start;
            result = cudaSuccess;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

cudaError_t cudaFree(void *place) {
    pthread_mutex_lock(&lock);
    int i = place ? find(on_device, blocks_on_device, place) : -1;
    if (i >= 0) {
        munmap(on_device[i].start, on_device[i].size);
        used[on_device[i].device] -= on_device[i].size;
        on_device[i] = on_device[--blocks_on_device];
    }
    pthread_mutex_unlock(&lock);
    DONE;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = memory_size();
    *free_bytes = *total - used[current];
    DONE;
}

cudaError_t cudaHostAlloc(void **place, size_t size, unsigned flags) {
    if (posix_memalign(place, 4096, size ? size : 1)) return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    if (blocks_pinned < MAX_BLOCKS) pinned[blocks_pinned++] = (Block){*place, size, 0};
    pthread_mutex_unlock(&lock);
    DONE;
}

cudaError_t cudaFreeHost(void *place) {
    pthread_mutex_lock(&lock);
    int i = find(pinned, blocks_pinned, place);
    if (i >= 0) pinned[i] = pinned[--blocks_pinned];
    pthread_mutex_unlock(&lock);
    free(place);
    DONE;
}

cudaError_t cudaHostRegister(void *place, size_t size, unsigned flags) { DONE; }
cudaError_t cudaHostUnregister(void *place) { DONE; }

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *place) {
    memset(about, 0, sizeof *about);
    pthread_mutex_lock(&lock);
    int host = find(pinned, blocks_pinned, place), device = find(on_device, blocks_on_device, place);
    about->type = host >= 0 ? cudaMemoryTypeHost : device >= 0 ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    about->device = device >= 0 ? on_device[device].device : 0;
    pthread_mutex_unlock(&lock);
    about->hostPointer = host >= 0 ? (void *)place : NULL;
    about->devicePointer = device >= 0 ? (void *)place : NULL;
    DONE;
}

/* ---- copies ---- */

static void copy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    if (kind == cudaMemcpyHostToDevice) pretend_count(HOST_TO_DEVICE);
    if (kind == cudaMemcpyDeviceToHost) pretend_count(DEVICE_TO_HOST);
    if (kind == cudaMemcpyDeviceToDevice) pretend_count(DEVICE_TO_DEVICE);
    if (size > 1 << 18 && getenv("PRETEND_SKIP_LARGE_COPIES")) return;
    if (size && to && from) memmove(to, from, size);
}

static void fill(void *place, int value, size_t size) {
    pretend_count(FILL);
    if (size > 1 << 18 && getenv("PRETEND_SKIP_LARGE_COPIES")) return;
    memset(place, value, size);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t s) {
    copy(to, from, size, kind);
    DONE;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    pretend_count(BLOCKING_COPY);
    copy(to, from, size, kind);
    DONE;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int d, const void *from, int e, size_t size, cudaStream_t s) {
    copy(to, from, size, cudaMemcpyDeviceToDevice);
    DONE;
}

cudaError_t cudaMemset(void *place, int value, size_t size) { fill(place, value, size); DONE; }
cudaError_t cudaMemsetAsync(void *place, int value, size_t size, cudaStream_t s) { fill(place, value, size); DONE; }

/* Global variables of kernels: no kernel reads them. */
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t at, enum cudaMemcpyKind kind) {
    DONE;
}
cudaError_t cudaGetSymbolAddress(void **place, const void *symbol) {
    static char nowhere[1 << 20];
    *place = nowhere;
    DONE;
}

/* ---- kernels: counted, never run ---- */

static cudaError_t launch(void) { pretend_count(LAUNCH); DONE; }
cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
    return launch();
}
cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
    return launch();
}
cudaError_t cudaLaunchCooperativeKernel(
    const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
    return launch();
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **args) { return launch(); }
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data) { function(data); DONE; }
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *f) { *kernel = (cudaKernel_t)f; DONE; }

/* `kernel<<<grid, block, shared, stream>>>(...)` is two calls: what is pushed here is popped by the launch. */
typedef struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} Configuration;
static __thread Configuration pushed[16];
static __thread int depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    pushed[depth++] = (Configuration){grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    Configuration top = pushed[--depth];
    *grid = top.grid, *block = top.block, *shared = top.shared, *(void **)stream = top.stream;
    DONE;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *about, const void *f) {
    memset(about, 0, sizeof *about);
    about->maxThreadsPerBlock = THREADS_PER_BLOCK, about->numRegs = 32;
    about->binaryVersion = about->ptxVersion = 10 * capability(0) + capability(1);
    DONE;
}
cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute what, int value) { DONE; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t f, enum cudaFuncAttribute what, int value, int d) { DONE; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *f, int threads, size_t shared) {
    *blocks = 2;
    DONE;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *f, int threads, size_t shared, unsigned flags) {
    *blocks = 2;
    DONE;
}
