/* CUDA's public headers include this one, which comes with the compiler for CUDA and not with torch's wheels. To a C
   compiler for the host all of its marks mean nothing. */
#ifndef PRETEND_HOST_DEFINES_H
#define PRETEND_HOST_DEFINES_H
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __location__(a)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __specialization_static static
#define __inline_hint__
#define __cdecl
#endif
