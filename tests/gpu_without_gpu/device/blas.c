/* cuBLAS and cuBLASLt: handles that name nothing, and matrix products that are counted as launches.

   Which functions torch calls differs between its versions. `names.h` is written when this is built, from the symbols
   that torch's libraries leave open: RUNS(name) for what computes, SETS(name) for the rest of what is not below. */

#include "pretend.h"

#include <stdlib.h>
#include <string.h>

static int computes(void) {
    pretend_count(LAUNCH);
    pretend_count(PRODUCT);
    return 0;
}

/* What gives something back. */
static int make(void **handle) {
    *handle = malloc(64);
    return 0;
}
int cublasCreate_v2(void **handle) { return make(handle); }
int cublasLtCreate(void **handle) { return make(handle); }
int cublasLtMatmulDescCreate(void **d, int type, int scale) { return make(d); }
int cublasLtMatmulPreferenceCreate(void **preference) { return make(preference); }
int cublasLtMatrixLayoutCreate(void **layout, int type, long rows, long columns, long lead) { return make(layout); }
int cublasGetMathMode(void *handle, int *mode) { return *mode = 0; }
int cublasGetPointerMode_v2(void *handle, int *mode) { return *mode = 0; }
size_t cublasLtGetVersion(void) { return 130000; }

enum { HEURISTIC_RESULT = 88 }; /* bytes of a cublasLtMatmulHeuristicResult_t; zeros: an algorithm, no workspace */
int cublasLtMatmulAlgoGetHeuristic(
    void *handle, void *d, void *a, void *b, void *c, void *e, void *preference, int wanted, void *result, int *found) {
    memset(result, 0, HEURISTIC_RESULT);
    *found = 1;
    return 0;
}

#define RUNS(name) \
    int name() { return computes(); }
#define SETS(name) \
    int name() { return 0; }
#include "names.h"
