/* The other header that only the compiler for CUDA brings. */
#include "host_defines.h"
