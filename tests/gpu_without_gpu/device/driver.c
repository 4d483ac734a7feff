/* The CUDA driver (libcuda.so.1), as far as Triton asks for it: contexts, modules and launches of what it compiled. */

#include "pretend.h"

#include <stdlib.h>
#include <string.h>

#define DONE return 0

extern int cudaDeviceGetAttribute(int *value, int what, int device); /* numbers mean the same as in the runtime */
extern int cudaGetDeviceCount(int *count);
extern int cudaDriverGetVersion(int *version);
extern int cudaGetDevice(int *device);

static char context[64];

int cuInit(unsigned flags) { DONE; }
int cuDriverGetVersion(int *version) { return cudaDriverGetVersion(version); }
int cuDeviceGet(int *device, int number) { *device = number; DONE; }
int cuDeviceGetCount(int *count) { return cudaGetDeviceCount(count); }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Pretend GPU", size); DONE; }
int cuDeviceGetAttribute(int *value, int what, int device) { return cudaDeviceGetAttribute(value, what, device); }
int cuCtxGetCurrent(void **current) { *current = context; DONE; }
int cuCtxSetCurrent(void *current) { DONE; }
int cuCtxPushCurrent_v2(void *current) { DONE; }
int cuCtxPopCurrent_v2(void **current) { if (current) *current = context; DONE; }
int cuCtxGetDevice(int *device) { return cudaGetDevice(device); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0, *active = 1; DONE; }
int cuDevicePrimaryCtxRetain(void **retained, int device) { *retained = context; DONE; }
int cuGetErrorString(int error, const char **said) { *said = "pretend error"; DONE; }
int cuPointerGetAttribute(void *value, int what, unsigned long place) { *(unsigned long *)value = place; DONE; }

/* What Triton compiled is kept as a handle, and never looked into. */
int cuModuleLoadData(void **module, const void *image) { *module = malloc(8); DONE; }
int cuModuleLoadDataEx(void **module, const void *image, unsigned n, void *o, void *v) { *module = malloc(8); DONE; }
int cuModuleLoad(void **module, const char *file) { *module = malloc(8); DONE; }
int cuModuleUnload(void *module) { DONE; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = malloc(8); DONE; }
enum { MAX_THREADS = 0, LOCAL_BYTES = 3, REGISTERS = 4 }; /* CUfunction_attribute */
int cuFuncGetAttribute(int *value, int what, void *function) {
    *value = what == MAX_THREADS ? 1024 : what == REGISTERS ? 64 : 0;
    DONE;
}
int cuFuncSetAttribute() { DONE; }
int cuFuncSetCacheConfig() { DONE; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *f, int threads, size_t shared) {
    *blocks = 2;
    DONE;
}
int cuOccupancyMaxActiveClusters(int *clusters, void *f, void *config) { *clusters = 2; DONE; }
int cuTensorMapEncodeTiled() { DONE; }

/* Triton's helper library wants these to exist; what it does with them is granted. */
int cuCtxGetLimit() { DONE; }
int cuCtxSetLimit() { DONE; }
int cuLinkCreate_v2() { DONE; }
int cuLinkAddData_v2() { DONE; }
int cuLinkComplete() { DONE; }
int cuMemAlloc_v2() { DONE; }
int cuMemFree_v2() { DONE; }
int cuMemcpyHtoD_v2() { DONE; }

static int launch(void) { pretend_count(LAUNCH); DONE; }
int cuLaunchKernel() { return launch(); }
int cuLaunchKernelEx() { return launch(); }
int cuLaunchCooperativeKernel() { return launch(); }

int cuStreamSynchronize() { pretend_count(STREAM_WAIT); DONE; }
